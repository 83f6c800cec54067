"""Commands for the jobs of a running cluster, which they reach only over its REST endpoint.

Duty: one file per command, with Flink's arguments, output lines and exit codes if Flink has the command.
Neighbours: `rest.client` asks, `rest.home.connections` finds the cluster; nothing here imports Spark, Arrow or the API.
Start reading: `cluster_command`.
"""
