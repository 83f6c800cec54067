"""The exchange of Arrow batches between subtasks, with credits.

Duty: frames, credit accounts, buffers, partitions (also stored ones), gates, channels, server and client.
Neighbours: imports the ground. `task` and `cluster/task_executor` run it; `shuffle_service` keeps results with it,
`spark` pushes rows through `ingest_sender`, `cli` shows its trace.
Start reading: `wire`, then `credit`.
"""
