"""What a checkpoint is: options, handles, metadata and storage.

Duty: the words in which tasks, coordinator and storage speak of snapshots.
Neighbours: imports `core` only.
Start reading: `metadata`.
"""
