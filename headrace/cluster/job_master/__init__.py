"""Runs one job: expands its graph, obtains slots, deploys executions, decides on failover.

Neighbours: asks the ResourceManager for slots, deploys to TaskExecutors, reports to the Dispatcher.
Start reading: `job_master`, then `job_shell`, `scheduling` and `scheduler_states`.
"""
