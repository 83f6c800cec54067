"""Pure state machines of the checkpoint coordinator: the schedule of checkpoints and the life of each one."""
