"""One subtask of a vertex in BATCH mode: its chain over ordered rows, without gates, partitions and checkpoints.

Start reading at `stage_task`. Neighbours: `spark/batch` makes a Spark stage of all subtasks of a vertex.
"""
