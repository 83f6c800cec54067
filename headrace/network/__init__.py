"""The exchange of Arrow batches between subtasks, with flow control by credit.

Duty: frames, credit accounts, buffers, partitions (also stored ones), gates, channels, connections.
Rooms, from the lowest: `memory`, `flow`, `wire`, `batches`, `partitions`, `stored`, `sessions`, `writers`, `transport`,
`gates`, `ingest`. `environment` assembles them for one TaskManager, `partition_factory` chooses among partitions,
and `trace` watches an exchange from outside.
Neighbours: imports the ground. `task` and `cluster/task_executor` run it; `shuffle_service` keeps results with it,
`spark` pushes rows through `ingest/sender`, `cli` shows its trace.
Start reading: `wire/frames`, then `flow/credit`.
"""
