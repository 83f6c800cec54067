"""The slots of one job: those that it has and wants, and which subtasks share one."""
