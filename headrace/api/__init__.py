"""User-facing API of a streaming program: environment, streams, windows, job client.

Duty: turns calls into a StreamGraph and raises errors for user mistakes while it is built.
Rooms: `streams`, `columns` (expressions and built-in aggregates), `settings`, `client` (a submitted job).
Neighbours: imports `gateways` and the ground; executors are found by name through entry points.
Start reading: `environment`, then `streams/data_stream`.
"""
