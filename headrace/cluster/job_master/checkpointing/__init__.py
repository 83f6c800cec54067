"""Checkpoints of one job, as its JobMaster takes them.

Duty: decides when a checkpoint is taken, collects the parts of all subtasks, publishes the checkpoint, commits its
output, and restores jobs from it. Rooms: `protocol` decides, purely; `store` keeps completed checkpoints; `commits`
commits the prepared output of sinks; `assignment` gives each subtask its part of a restored snapshot. Neighbours: the
scheduler knows the running attempts; `headrace.checkpoint` stores checkpoints. Start reading: `protocol/events` has the
steps of a checkpoint, `protocol/checkpoint_protocol` decides on them, and `checkpoint_coordinator` performs them.
"""
