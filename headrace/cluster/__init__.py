"""The control plane: Dispatcher, JobMaster, ResourceManager and TaskExecutor.

Duty: accept jobs, find slots, deploy tasks, monitor them and restart them after failures.
Neighbours: speaks through `gateways`; only `cluster/task_executor` reaches the data plane.
Start reading: `dispatcher`, then `job_master`.
"""
