"""The operators of the runtime: columns in, columns out, row loops only around user functions.

Duty: process batches, watermarks and timers; know nothing of channels or threads.
Neighbours: imports `state` and the ground; a graph node names its operator, `registry` resolves the name.
Start reading: `operator`, then `registry`.
"""
