"""The three plans, frozen: StreamGraph → JobGraph → ExecutionGraph.

Duty: describe a job as values that print, compare and serialise; running it is the cluster's duty.
Neighbours: imports `core` only; `api` builds plans, `cluster` expands and deploys them.
Start reading: `stream_graph`, then `chaining`.
"""
