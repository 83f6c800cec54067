"""One subtask in BATCH mode: runs its chain over ordered rows, without gates, partitions and checkpoints.

Start reading at `stage_task`. Neighbours: `spark/batch` runs all subtasks of a vertex as a Spark stage.
"""
