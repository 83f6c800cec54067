"""What operators are made of: the interface, user functions and their contexts, emission, timers."""
