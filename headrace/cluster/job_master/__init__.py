"""Runs one job: expands its graph, obtains slots, deploys executions and handles failures.

Rooms, from the lowest: `slots` and `results`, `failover`, `connections` (TaskManagers, the ResourceManager, the shuffle
master), `scheduler`, `coordinators` (of operators), `checkpointing`. `executions` keeps the attempts of subtasks.
Neighbours: asks the ResourceManager for slots, deploys to TaskExecutors, reports to the Dispatcher.
Start reading: `job_master` makes the scheduler and its services, `scheduler/scheduler_states` decides and
`scheduler/scheduler` acts.
"""
