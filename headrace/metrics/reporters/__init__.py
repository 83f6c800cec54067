"""Reporters: send what the registry of a process reads to other systems, each on a thread of its own.

Duty: reads the groups of a process, finds the reporters that settings name (entry points of
`headrace.metric_reporters`), filters the metrics for each, and isolates a reporter that fails or hangs.
Neighbours: imports `core`, and of `metrics` names, groups, readings and scopes.
Start reading: `registry`, then `reporter` and `reporter_thread`; there are `prometheus`,
`prometheus_push_gateway`, `otel`, `log` and `json_lines`.
"""
