"""The operators of the runtime: columns in, columns out, row loops only around user functions.

Duty: process batches, watermarks and timers; know nothing of channels or threads.
Rooms: `runtime` is what operators are made of; `record`, `async_io`, `windowing`, `joins`, `columns` and
`sources_sinks` are the operators.
Neighbours: imports `state` and the ground; a graph node names its operator, `registry` resolves the name.
Start reading: `runtime/operator`, then `registry`.
"""
