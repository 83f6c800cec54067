"""What users implement: record functions, process functions, sources, sinks, state, watermarks, windows, joins.

Duty: the contracts between user code and the runtime, without either.
Neighbours: imports `core` only; `api` takes these, `operators` call them.
Start reading: `record`, then `process`.
"""
