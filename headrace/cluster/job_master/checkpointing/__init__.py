"""Checkpoints of one job, seen from its JobMaster.

Duty: decide when a checkpoint is taken, hear all subtasks, publish it, commit what it prepared, and restore from it.
Neighbours: the scheduler says who runs; `headrace.checkpoint` stores.
Start reading: `coordinator` decides, `job_checkpointing` acts.
"""
