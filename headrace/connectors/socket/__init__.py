"""Lines of text from a socket, for trying things out.

Duty: SocketSource, which loses what was sent while nobody read. Start reading: `source`, then `lines`.
"""
