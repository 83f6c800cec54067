"""What a program is written in: environment, streams, windows, job client.

Duty: turn calls into a StreamGraph, raising user mistakes while it is built.
Neighbours: imports `gateways` and the ground; executors are found by name through entry points.
Start reading: `environment`, then `data_stream`.
"""
