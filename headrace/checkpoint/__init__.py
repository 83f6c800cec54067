"""What a checkpoint is: handles of what was written, metadata, storage.

Duty: the words in which tasks, coordinator and storage speak of snapshots.
Rooms: `storage` writes and reads snapshots, `retention` keeps and deletes them.
Neighbours: imports `core` only; barriers, which travel between tasks, are in `core/barriers`.
Start reading: `handles`, then `storage/subtask_storage`; what a driver publishes is in `metadata`.
"""
