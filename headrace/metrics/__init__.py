"""What is measured: metric names, instruments, and the groups they hang in (job → task → operator).

Duty: one row per metric in `names`, cheap instruments for hot paths, reporters at the edge.
Neighbours: imports `core` only; tasks and the control plane count with it.
Start reading: `names`.
"""
