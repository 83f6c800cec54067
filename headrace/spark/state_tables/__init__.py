"""Keyed state of snapshots as Spark tables: a data source that reads them, and a writer of savepoints.

Neighbours: `headrace/state_processor` reads and edits the files; `pyspark_headrace` registers the data source with
Spark. Start reading: `state_source`, then `state_writer`. Programs import StateWriter from
`headrace.spark.state_writer`.
"""
