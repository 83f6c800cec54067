"""The exchange of Arrow batches between subtasks, with credits.

Duty: frames, credit accounts, buffers, partitions, gates, channels, server and client.
Neighbours: imports the ground; only `task` and `cluster/task_executor` use it.
Start reading: `wire`, then `credit`.
"""
