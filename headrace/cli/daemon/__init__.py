"""Daemons: processes that outlive the command which starts them, without a terminal.

Duty: to start one so that it has no secret on its command line, to hear from it how its start went, and to leave
nothing behind where that failed.
Neighbours: `cli.cluster.start_cluster` starts sessions, `cli.run` programs (`-d`).
Start reading: `daemon_process`, the side of the command; `__main__` is the daemon.
"""
