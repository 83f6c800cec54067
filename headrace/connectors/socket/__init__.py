"""Lines of text from a socket, for trying things out.

Duty: SocketSource, which loses data that is sent while no job reads. Start reading: `source`.
"""
