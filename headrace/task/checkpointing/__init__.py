"""A subtask's part of a checkpoint: barriers, snapshots and data in flight."""
