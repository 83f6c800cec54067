"""The remote shuffle service: results of blocking exchanges in a process that outlives TaskManagers.

`factory` is what the entry point names. In a cluster: `remote_shuffle_master` (JobManager) and
`remote_shuffle_environment` with `remote_partition` (TaskManager). In the service's own process, begun by `process`:
`endpoint` (calls), `service` (connections), `push_session` (what is pushed), `partition_store` (files).
Start reading with docs/architecture.md, "The shuffle plug-in".
"""
