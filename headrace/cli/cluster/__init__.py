"""`headrace cluster`: starts clusters without a program, lists clusters of this machine, shows and stops them.

Duty: one file per command.
Neighbours: `cli.daemon` starts processes that stay, `spark.session_cluster` is what runs in them, and
`rest.connections` finds clusters; only the start of one imports Spark.
Start reading: `start_cluster`.
"""
