"""Jobs that have ended: their archives, and the server that shows them after their cluster has ended.

Duty: the archive's format, the writer in a cluster's host, metrics over time, the history server.
Neighbours: renders with the handlers of `rest`; hosts connect JobHistory with the Dispatcher, the command line runs
HistoryServer.
Start reading: `archive_file`, then `job_history` (which writes) and `archive_catalog` (which reads).
"""
