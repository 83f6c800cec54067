"""What users implement: record functions, process functions, sources, sinks, state, watermarks, windows, joins.

Duty: the contracts between user code and the runtime, without either.
Rooms: `windowing` has assigners and triggers; `specs` is what graphs carry, and not for users.
Neighbours: imports `core` only; `api` takes these, `operators` call them.
Start reading: `record`, then `process`.
"""
