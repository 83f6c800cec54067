"""A proxy between two data planes that knows their frames and spoils them by rule and seed; also in simulations.

Neighbours: `headrace/network` for frames; tests and people use it, nobody imports it.
Start reading: `rules` (what can be asked for), `injector` (who decides), then the shells `proxy` and `simulated`.
"""
