"""When checkpoints are taken and what becomes of each: pure state machines of the coordinator."""
