"""One running subtask: mailbox, operator chain, input processor, barriers and watermark valve.

Duty: move batches from gate through operators to partitions on one thread.
Neighbours: imports `network`, `operators`, `state` and the ground, never `rpc` or `gateways`.
Start reading: `stream_task`, then `mailbox`.
"""
