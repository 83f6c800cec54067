"""Stored results that are lost or released: written again once, and never taken from a consumer that may read them."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.error_reports import error_info_of
from headrace.core.ids import ExecutionAttemptId, ResourceId, ResultPartitionId
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.gateways.messages import ErrorInfo, SlotOffer
from headrace.graph.job_graph import PartitionerKind
from headrace.network.errors import PartitionNotFoundError
from tests.unit.cluster.cluster_samples import SLOT_PROFILE, allocation
from tests.unit.cluster.job_master.scheduler_world import USER_ERROR, Fixture

S = ExecutionState
BLOCKING = ResultPartitionType.BLOCKING
CONSUMERS = 100
FEW = 2
RESTARTS = 4


class StoredJob:
    """Producers and as many consumers of all their results; a TaskManager of one slot for each."""

    def __init__(self, parallelism: int, restarts: int, kind: PartitionerKind) -> None:
        self.job = Fixture(restarts, BLOCKING, kind, parallelism=parallelism)
        self.parallelism = parallelism
        self.slot_count = 0
        self.checked = 0
        self.job.scheduler.start()
        self.settle()

    def settle(self) -> None:
        """Cancelled tasks end, restarts begin, slots come, and what was deployed runs."""
        for execution in list(self.job.scheduler.executions):
            if execution.state is S.CANCELING:
                self.job.report(execution.attempt_id, S.CANCELED)
        later, self.job.services.later = self.job.services.later, []
        for _, action in later:
            action()
        if self.job.scheduler.is_waiting_for_slots:
            for _ in range(self.parallelism):
                self.slot_count += 1
                offer = SlotOffer(allocation(self.slot_count), 0, SLOT_PROFILE)
                self.job.scheduler.pool.offer(ResourceId(f"tm-{self.slot_count}"), [offer], 0)
            self.job.scheduler.slots_changed()
        for execution in list(self.job.scheduler.executions):
            if execution.state is S.DEPLOYING:
                self.job.report(execution.attempt_id, S.RUNNING)

    @property
    def producers(self) -> list[ExecutionAttemptId]:
        return self.job.attempts[: self.parallelism]

    @property
    def consumers(self) -> list[ExecutionAttemptId]:
        return self.job.attempts[self.parallelism :]

    def sources_of(self, consumer: ExecutionAttemptId) -> set[ResultPartitionId]:
        """What this attempt was told to read."""
        return {
            channel.shuffle.partition_id
            for execution, descriptor in self.job.services.submitted
            if execution.attempt_id == consumer
            for gate in descriptor.input_gates
            for channel in gate.channels
        }

    def partition_of(self, producer: ExecutionAttemptId) -> ResultPartitionId:
        (partition,) = (
            each.descriptor.partition_id
            for execution, descriptor in self.job.services.submitted
            if execution.attempt_id == producer
            for each in descriptor.result_partitions
        )
        return partition

    def finish_producers(self) -> None:
        for producer in self.producers:
            self.job.report(producer, S.FINISHED)

    def released_too_early(self) -> list[ResultPartitionId]:
        """What was released since the last time although a consumer may still read it, or once too often."""
        released = [each for _, each in self.job.services.released]
        checked, self.checked = self.checked, len(released)
        found = [each for each in released[checked:] if released.count(each) > 1]
        if self.job.scheduler.status is not JobStatus.RUNNING:
            return found
        present = set(self.producers)
        for partition in released[checked:]:
            for execution in list(self.job.scheduler.executions)[self.parallelism :]:
                reads = self.sources_of(execution.attempt_id)
                is_foreign = bool(reads) and partition not in reads
                is_done = execution.state is S.FINISHED or is_foreign
                if partition.producer in present and not is_done:
                    found.append(partition)
        return found


def not_found(partition: ResultPartitionId) -> ErrorInfo:
    return error_info_of(PartitionNotFoundError(str(partition), "tm"))


def test_a_lost_result_is_written_again_once_however_many_consumers_miss_it() -> None:
    """The one restart that is allowed would not do for a second report."""
    stored = StoredJob(CONSUMERS, 1, PartitionerKind.HASH)
    stored.finish_producers()
    lost = stored.partition_of(stored.producers[0])
    missing = stored.consumers
    for consumer in missing:
        stored.job.report(consumer, S.FAILED, not_found(lost))
    stored.settle()
    for consumer in missing:
        stored.job.report(consumer, S.FAILED, not_found(lost))
    assert [each.attempt_number for each in stored.producers] == [1] + [0] * (CONSUMERS - 1)
    assert [each.attempt_number for each in stored.consumers] == [1] * CONSUMERS
    assert len(stored.job.services.submitted) == 2 * CONSUMERS + 1 + CONSUMERS
    assert stored.job.scheduler.history.restart_count == 1
    stored.finish_producers()
    for consumer in stored.consumers:
        assert stored.partition_of(stored.producers[0]) in stored.sources_of(consumer)
        assert lost not in stored.sources_of(consumer)
        stored.job.report(consumer, S.FINISHED)
    assert stored.job.scheduler.executions.all_finished


@given(
    kind=st.sampled_from([PartitionerKind.HASH, PartitionerKind.FORWARD]),
    events=st.lists(
        st.tuples(
            st.sampled_from(["finish"] * 6 + ["settle"] * 3 + ["fail", "miss", "kill"]),
            st.integers(0, 30),
        ),
        min_size=10,
        max_size=40,
    ),
)
def test_no_result_is_released_while_a_consumer_may_read_it(
    kind: PartitionerKind, events: list[tuple[str, int]]
) -> None:
    stored = StoredJob(FEW, RESTARTS, kind)
    job = stored.job
    for event, number in events:
        executions = list(job.scheduler.executions)
        execution = executions[number % len(executions)]
        match event:
            case "finish":
                job.report(execution.attempt_id, S.FINISHED)
            case "fail":
                job.report(execution.attempt_id, S.FAILED, USER_ERROR)
            case "miss":
                consumer = stored.consumers[number % FEW]
                sources = sorted(stored.sources_of(consumer), key=str)
                if sources:
                    error = not_found(sources[number % len(sources)])
                    job.report(consumer, S.FAILED, error)
            case "kill" if execution.slot is not None:
                job.scheduler.lose_task_manager(execution.slot.resource_id, USER_ERROR)
            case _:
                stored.settle()
        assert stored.released_too_early() == []
