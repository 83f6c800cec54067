"""What a checkpoint is: options, handles, metadata and storage. Nothing of it is there yet.

Duty: the words in which tasks, coordinator and storage speak of snapshots.
Neighbours: imports `core` only.
Start reading: `core/key_groups` says by what unit keyed state will be cut.
"""
