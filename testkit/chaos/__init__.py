"""Chaos: runs a job with a known answer while processes die, and compares its committed output with that answer.

Duty: two jobs with their oracles, the table of moments, the runner on real Spark, planted bugs that must be caught.
Neighbours: uses everything as a user's program does; failpoints are `headrace/core/process/failpoints`.
Start reading: `scenarios`, then `runner`. Run it: `make chaos`, or `python -m testkit.chaos --help`.
"""
