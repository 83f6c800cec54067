"""Checkpointing in one subtask: barriers, snapshots and in-flight data."""
