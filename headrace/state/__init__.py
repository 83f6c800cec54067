"""Keyed and operator state: backends, snapshots and restore.

Duty: hold state by key group and give it back at any parallelism.
Neighbours: imports the ground; `operators` and `task` use it.
Start reading: `backend`, then `heap`.
"""
