"""State as data: the tables of a checkpoint or savepoint, read without a job, and edited into a new savepoint.

Neighbours: `checkpoint` defines snapshots, `state` the files of their rows, and `spark` shows the tables as DataFrames.
Start with `stored_state` (reading) and `savepoint_editor` (writing).
Source: Flink State Processor API.
"""
