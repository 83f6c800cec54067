"""BATCH mode: vertices of a bounded job as Spark stages, edges between them as Spark's shuffle.

Start reading at `batch_job`; a stage's work on an executor is `task/batch/stage_task`. Neighbours: `task/chain` holds
the operators of a stage, `spark/executor` decides which jobs come here.
"""
