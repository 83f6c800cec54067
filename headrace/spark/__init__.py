"""Spark as the host: control plane on the driver, TaskExecutors in Spark's Python workers.

Duty: start and stop the cluster's processes inside Spark, and connect DataFrame and DataStream.
Rooms: `session` (the SparkSession and its JVM), `workers` (TaskManagers as Spark jobs), `dataframes`,
`state_tables` (snapshots as tables), `batch` (jobs in BATCH mode as Spark stages).
Neighbours: a host imports other edges and the cluster; nobody imports a host. The only folder that imports PySpark.
Start reading: `host`, then `workers/worker`.
"""
