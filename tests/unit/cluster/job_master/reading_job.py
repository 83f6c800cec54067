"""A job that reads what an earlier job left."""

import msgspec

from headrace.cluster.job_master.failover.restart_strategies import FixedDelayRestart
from headrace.cluster.job_master.results.partition_tracker import PartitionTracker
from headrace.cluster.job_master.scheduler.scheduler import Scheduler
from headrace.core.clock import ManualClock
from headrace.core.ids import (
    ClusterDataSetId,
    ExecutionAttemptId,
    ExecutionVertexId,
    IntermediateDataSetId,
    ResourceId,
    ResultPartitionId,
)
from headrace.core.lifecycle import ExecutionState
from headrace.core.shuffle_descriptors import ResultPartitionType, ShuffleDescriptor
from headrace.gateways.messages import ErrorInfo
from headrace.graph.job_graph import PartitionerKind, VertexKind
from tests.unit.cluster.cluster_samples import (
    OTHER_JOB,
    TM_2,
    edge,
    job_graph,
    vertex,
    vertex_id,
)
from tests.unit.cluster.job_master.scheduler_world import Fixture, ScriptedServices

S = ExecutionState


DATA_SET = ClusterDataSetId(OTHER_JOB, IntermediateDataSetId(b"d" * 16))


KEEPERS = (ResourceId("keeper-1"), TM_2)


def place(number: int) -> ShuffleDescriptor:
    producer = ExecutionAttemptId(OTHER_JOB, ExecutionVertexId(vertex_id(9), number), 0)
    key = ResultPartitionId(DATA_SET.data_set_id, number, producer)
    return ShuffleDescriptor(key, ScriptedServices().location_of(KEEPERS[number]))


PLACES = (place(0), place(1))


class ReadingJob(Fixture):
    """Two subtasks that read a data set, and two behind them; it may restart."""

    def __init__(
        self,
        restarts: int = 9,
        result_type: ResultPartitionType = ResultPartitionType.PIPELINED_BOUNDED,
        kind: PartitionerKind = PartitionerKind.HASH,
        services: ScriptedServices | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.services = services or ScriptedServices()
        self.services.places = {DATA_SET: PLACES}
        reader = msgspec.structs.replace(
            vertex(1, 2), cached_input=DATA_SET, kind=VertexKind.ONE_INPUT
        )
        self.scheduler = Scheduler(
            job_graph((reader, vertex(2, 2)), (edge(1, 2, kind, result_type),)),
            FixedDelayRestart(restarts, 100),
            self.clock,
            PartitionTracker(releases_during_job=True),
        )
        self.services.connect(self.scheduler)

    def restart(self) -> None:
        for attempt_id in self.attempts:
            self.report(attempt_id, S.CANCELED)
        for _, action in self.services.later:
            action()

    @property
    def cause(self) -> ErrorInfo:
        cause = self.scheduler.history.cause
        assert cause is not None
        return cause.error
