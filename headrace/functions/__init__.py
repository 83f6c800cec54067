"""Interfaces that users implement: record and process functions, sources, sinks, state, watermarks, windows, joins.

Duty: defines the contracts between user code and the runtime. Rooms: `windowing` has assigners and triggers; `specs`
has the operator specs of graphs, not for users; `sources` has those that the runtime brings itself. Neighbours:
imports `core` only; `api` accepts these, `operators` call them. Start reading: `record`, then `process`.
"""
