"""The operators of the runtime, which process columns; they loop over rows only to call user functions.

Duty: process batches, watermarks and timers, independently of channels and threads.
Rooms: `runtime` has their building blocks; `record`, `windowing`, `columns` and `sources_sinks` are the
operators.
Neighbours: imports `state` and the ground; a graph node names its operator, `registry` resolves the name.
Start reading: `runtime/operator`, then `registry`.
"""
