"""Runs one job: expands its graph, obtains slots, deploys executions, decides on failover.

Rooms, from the lowest: `slots` and `results`, `executions`, `failover`, `scheduler`, `connections` (TaskManagers, the
ResourceManager, the shuffle master), `coordinators` (of operators), `checkpointing`.
Neighbours: asks the ResourceManager for slots, deploys to TaskExecutors, reports to the Dispatcher.
Start reading: `job_master`, then `job_shell`, `scheduler/scheduler` and `scheduler/states`.
"""
