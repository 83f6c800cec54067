"""PostgreSQL as a sink, under the names of Flink's JDBC connector.

Duty: JdbcSink, which runs a statement for each record, at least once or exactly once with each checkpoint.
Neighbours: psycopg, imported only where a connection is made.
Start reading: `sink`, then `writers` (tasks) and `staged_commit` (driver).
"""
