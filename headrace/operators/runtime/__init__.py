"""Building blocks of operators: the interface, user functions and their contexts, emission, timers."""
