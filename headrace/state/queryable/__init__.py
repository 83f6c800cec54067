"""State of running tasks, read in pieces by their own threads."""
