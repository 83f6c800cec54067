"""Jobs that have ended: their archives, and the server that shows them when their cluster is gone.

Duty: the archive's format, the writer of a cluster's host, metrics over time, the history server.
Neighbours: renders with the handlers of `rest`; hosts connect JobHistory with the Dispatcher, the command line runs
HistoryServer.
Start reading: `archive_file`, then `job_history` (the side that writes) and `archive_catalog` (the side that reads).
"""
