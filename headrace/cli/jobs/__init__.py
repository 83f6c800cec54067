"""Commands for jobs that somebody else started: they speak to the REST endpoint of a cluster, and to nothing else.

Duty: one file per command, with Flink's arguments, lines and exit codes where Flink has the command.
Neighbours: `rest.client` asks, `rest.connections` finds the cluster; nothing here imports Spark, Arrow or the API.
Start reading: `cluster_command`.
"""
