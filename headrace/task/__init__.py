"""One running subtask: its mailbox, chain of operators, inputs and outputs.

Rooms: `chain` holds the operators, `input` reads gates, `checkpointing` handles barriers and snapshots,
`batch` runs stages of BATCH mode.
Neighbours: built by `cluster.task_executor.deployment`, reads and writes through `network`, runs `operators`. It never
uses RPC: it reports through its TaskListener. Start at `task`, then `stream_task`.
"""
