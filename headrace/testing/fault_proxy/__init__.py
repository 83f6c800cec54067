"""A proxy between two data planes that delays, damages, drops or reorders their frames by rules and a seed.

Neighbours: `headrace/network` for frames; only tests and people use it. Start reading: `rules` (the faults), `injector`
(decides), then `proxy` (its shell around sockets).
"""
