"""Live reads: the state of running tasks, read in pieces by the tasks' own threads."""
