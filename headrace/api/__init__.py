"""What a program is written in: environment, streams, windows, job client.

Duty: turn calls into a StreamGraph, raising user mistakes while it is built.
Rooms: `streams`, `columns` (expressions and built-in aggregates), `settings`, `client` (a submitted job).
Neighbours: imports `gateways` and the ground; executors are found by name through entry points.
Start reading: `environment`, then `streams/data_stream`.
"""
