"""Checkpoints of one job, seen from its JobMaster.

Duty: decides when a checkpoint is taken, collects the parts of all subtasks, publishes it, commits its output, and
restores jobs from it.
Rooms: `protocol` decides, purely; `store` keeps completed checkpoints; `commits` commits the prepared output of sinks;
`assignment` gives each subtask its part of a restored snapshot.
Neighbours: the scheduler knows who runs; `headrace.checkpoint` stores.
Start reading: `protocol/events` has the steps of a checkpoint, `protocol/checkpoint_protocol` decides on them, and
`checkpoint_coordinator` performs them.
"""
