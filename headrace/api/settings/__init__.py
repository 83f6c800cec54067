"""Settings of a program: execution, checkpoints, restarts, state backends, slots."""
