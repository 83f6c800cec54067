"""Kafka as source and sink, with PyFlink's builders.

Duty: KafkaSource reads partitions as splits; KafkaSink writes directly, or stages records and has each checkpoint's
written in one transaction by the driver.
Neighbours: confluent-kafka, imported by `clients` and nowhere else.
Start reading: `sink`, then `writers` (tasks) and `transaction_commit` (driver); `source`, `enumerator`, `reader`.
"""
