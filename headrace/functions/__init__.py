"""Interfaces that users implement: record and process functions, sources, sinks, state, watermarks, windows, joins.

Duty: defines the contracts between user code and the runtime, without either.
Rooms: `windowing` has assigners and triggers; `specs` has the operator specs that graphs carry, not for users.
Neighbours: imports `core` only; `api` takes these, `operators` call them.
Start reading: `record`, then `process`.
"""
