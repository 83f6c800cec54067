"""The remote shuffle service, which stores results of blocking exchanges in a process that outlives TaskManagers.

In a cluster: `remote_shuffle_master` (JobManager; also has the factory that the entry point names) and
`remote_shuffle_environment` with `remote_partition` (TaskManager). In the service's own process, started by `process`:
`endpoint` (calls), `service` (connections), `push_session` (pushed results), `partition_store` (files).
Start reading with docs/architecture.md, "The shuffle plug-in".
"""
