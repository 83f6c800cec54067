"""Checkpoints as values and files: state handles, metadata, storage.

Duty: defines the types with which tasks, coordinator and storage describe snapshots.
Rooms: `storage` writes and reads snapshots, `retention` keeps and deletes them.
Neighbours: imports `core` only; barriers, which tasks send to each other, are in `core/barriers`.
Start reading: `handles`, then `storage/subtask_storage`; `metadata` describes the content that a driver publishes.
"""
