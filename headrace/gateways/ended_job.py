"""EndedJob: the facts about a job that has ended, as its JobMaster would have answered last.

Source: Flink ExecutionGraphInfo.
"""

from collections.abc import Callable

import msgspec

from headrace.gateways.checkpoint_statistics import (
    CheckpointConfiguration,
    CheckpointDetails,
    CheckpointStatistics,
)
from headrace.gateways.dispatcher import JobOverview, JobResult
from headrace.gateways.job_master import JobConfiguration, JobDetails
from headrace.graph.job_plan import JobPlan


class EndedJob(msgspec.Struct, frozen=True):
    """Answers about one job. `checkpoints`: those that its JobMaster remembered, with their subtasks."""

    details: JobDetails
    result: JobResult
    overview: JobOverview
    plan: JobPlan
    configuration: JobConfiguration
    checkpoint_statistics: CheckpointStatistics
    checkpoint_configuration: CheckpointConfiguration
    checkpoints: tuple[CheckpointDetails, ...] = ()

    def checkpoint(self, checkpoint_id: int) -> CheckpointDetails | None:
        """Return a checkpoint with its subtasks; None if it is not remembered."""
        found = (
            each for each in self.checkpoints if each.checkpoint.checkpoint_id == checkpoint_id
        )
        return next(found, None)


OnJobEnded = Callable[[EndedJob], None]
"""Function called on the control thread when a job has ended; it returns at once."""
