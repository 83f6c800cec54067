"""Pure state machines of the checkpoint coordinator: the schedule of checkpoints and the lifecycle of each one."""
