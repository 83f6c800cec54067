"""`headrace cluster`: starts clusters without a program, lists clusters of this machine, shows and stops them.

Duty: one file per command.
Neighbours: `cli.daemon` starts processes that stay, `spark.session_cluster` runs in them, and
`rest.home.connections` finds clusters; only starting a cluster imports Spark.
Start reading: `start_cluster`.
"""
