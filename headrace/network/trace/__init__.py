"""A tiny exchange that runs step by step and records every frame and credit account; for learners and the docs.

Neighbours: observes `headrace/network` without changing it; `headrace/cli` prints the steps.
Start reading: `steps` (the records), then `exchange` (the run).
"""
