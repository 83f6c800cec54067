"""Slots of one job: the ones that it has and needs, and the subtasks that share one."""
