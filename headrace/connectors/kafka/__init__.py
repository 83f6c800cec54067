"""Kafka as source and sink, with PyFlink's builders.

Duty: KafkaSource reads partitions as splits; KafkaSink writes directly, or stages records, which the driver writes in
one transaction per checkpoint. Neighbours: confluent-kafka, imported by `clients` and nowhere else. Start reading:
`sink`, then `writers` (tasks) and `transaction_commit` (driver); `source`, `enumerator`, `reader`.
"""
