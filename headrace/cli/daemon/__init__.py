"""Daemons: processes that outlive the command which starts them, without a terminal.

Duty: starts a daemon without secrets on its command line, receives its report on the start, and leaves nothing behind
if that failed. Neighbours: `cli.cluster.start_cluster` starts sessions, `cli.run` programs (`-d`). Start reading:
`daemon_process`, which the command uses; `__main__` is the daemon.
"""
