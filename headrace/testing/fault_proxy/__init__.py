"""A proxy between two data planes that delays, damages, drops or reorders their frames by rules and a seed.

Neighbours: `headrace/network` for frames; tests and people use it, nobody imports it.
Start reading: `rules` (what can be asked for), `injector` (decides), then `proxy` (its shell around sockets).
"""
