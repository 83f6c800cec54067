"""Checkpoints of one job, seen from its JobMaster.

Duty: decide when a checkpoint is taken, hear all subtasks, publish it, commit what it prepared, and restore from it.
Rooms: `protocol` decides, purely; `store` keeps completed checkpoints, `commits` publishes what sinks prepared,
`assignment` says which subtask starts from which part.
Neighbours: the scheduler says who runs; `headrace.checkpoint` stores.
Start reading: `protocol/checkpoint_protocol` decides, `checkpoint_coordinator` acts.
"""
