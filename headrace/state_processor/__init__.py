"""State as data: the tables of a checkpoint or savepoint, read without a job, and edited into a new savepoint.

Neighbours: `checkpoint` says what a snapshot is, `state` how its rows stand in files, and `spark` shows the tables as
DataFrames. Start with `stored_state` (what is read) and `savepoint_editor` (what is written).
Source: Flink State Processor API.
"""
