"""The three plans, frozen: StreamGraph → JobGraph → ExecutionGraph.

Duty: say what is to run, as values that print, compare and serialise; running them is someone else's job.
Neighbours: imports `core` only; `api` builds plans, `cluster` expands and deploys them.
Start reading: `stream_graph`, then `chaining`.
"""
