"""Scheduler: whatever happens in whatever order, and however late it is heard of, the job stays whole and ends."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.checkpoint.handles import SubtaskRestore
from headrace.cluster.job_master.connections.partition_registrar import PartitionRegistration
from headrace.cluster.job_master.executions import Execution
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.core.ids import ClusterDataSetId, ExecutionAttemptId, ExecutionVertexId, ResourceId
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.gateways.messages import ErrorInfo, SlotOffer
from headrace.gateways.task_executor import TaskDeploymentDescriptor
from headrace.graph.job_graph import PartitionerKind
from tests.unit.cluster.cluster_samples import SLOT_PROFILE, allocation
from tests.unit.cluster.job_master.reading_job import PLACES, ReadingJob
from tests.unit.cluster.job_master.scheduler_world import USER_ERROR, Fixture, ScriptedServices

S = ExecutionState
FATAL = ErrorInfo("ConfigurationError", "no", "USER", recoverable=False)
RESTARTS = 3
HELD_BACK = ("", "", "", "restore", "register", "submit", "timer", "find")
REPORTS = (S.INITIALIZING, S.RUNNING, S.FINISHED, S.CANCELED, S.FAILED)


class SlowServices(ScriptedServices):
    """Answers nothing by itself: what was asked lies in `asked`, and may be answered at any time, once."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Callable[[bool], None]]] = []
        self.newest_restore = 0
        self.newest_find = 0
        self.descriptors: dict[ExecutionAttemptId, TaskDeploymentDescriptor] = {}
        self.hosts: dict[ExecutionAttemptId, ResourceId] = {}
        self.ended: set[ExecutionAttemptId] = set()
        """Attempts that may be known to do nothing any more."""

    def restore(self, scope: frozenset[ExecutionVertexId], version: int) -> None:
        self.newest_restore = version

        def answer(is_good: bool) -> None:
            if is_good:
                # The version in place of a checkpoint: so it is seen which answer was used.
                restores = {subtask: SubtaskRestore(version, {}) for subtask in scope}
                self.scheduler.restored(restores, version)
            elif self.scheduler.awaits_restore(version):
                self.scheduler.fail_job(Failure(USER_ERROR))

        self.asked.append(("restore", answer))

    def find(
        self, data_sets: Sequence[ClusterDataSetId], version: int, on_found: Any, on_failed: Any
    ) -> None:
        self.newest_find = version

        def answer(is_good: bool) -> None:
            if is_good:
                # The version in place of a host: so it is seen which answer was used.
                at = self.location_of(ResourceId(f"keeper-{version}"))
                places = tuple(msgspec.structs.replace(each, location=at) for each in PLACES)
                on_found(dict.fromkeys(data_sets, places), version)
            else:
                on_failed(USER_ERROR, version)

        self.asked.append(("find", answer))

    def register(
        self,
        registrations: Sequence[PartitionRegistration],
        version: int,
        on_registered: Any,
        on_failed: Any,
    ) -> None:
        def answer(is_good: bool) -> None:
            if is_good or not registrations:
                places = [self.place(each.partition, each.producer) for each in registrations]
                on_registered(places, version)
            else:
                attempt_id = registrations[-1].producer.attempt_id
                on_failed(attempt_id, USER_ERROR)

        self.asked.append(("register", answer))

    def submit_task(
        self, execution: Execution, descriptor: TaskDeploymentDescriptor, on_answer: Any
    ) -> None:
        assert descriptor.attempt_id not in self.descriptors, "an attempt is deployed once"
        assert descriptor.restore is not None, "all of the scope is restored"
        assert descriptor.restore.checkpoint_id == self.newest_restore, "from the newest answer"
        if descriptor.vertex.cached_input is not None:
            (channel,) = descriptor.input_gates[0].channels
            assert channel.shuffle.stored_by == ResourceId(f"keeper-{self.newest_find}")
        attempt_id = descriptor.attempt_id
        subtask = attempt_id.execution_vertex_id
        earlier = {one for one in self.descriptors if one.execution_vertex_id == subtask}
        assert earlier <= self.ended, "no two attempts of a subtask live at a time"
        assert execution.slot is not None
        self.descriptors[attempt_id] = descriptor
        self.hosts[attempt_id] = execution.slot.resource_id

        def answer(is_good: bool) -> None:
            if not is_good:
                self.ended.add(attempt_id)
            on_answer(attempt_id, None if is_good else USER_ERROR)

        self.asked.append(("submit", answer))

    def schedule_run_async(self, delay_ms: float, action: Callable[[], None]) -> None:
        self.asked.append(("timer", lambda is_good: action()))

    def commit(self) -> None:
        super().commit()

        def answer(is_good: bool) -> None:
            if is_good:
                self.scheduler.committed()
            else:
                self.scheduler.fail_job(Failure(USER_ERROR))

        self.asked.append(("commit", answer))


class History:
    """One job, and what the world does to it."""

    def __init__(
        self, kind: PartitionerKind, result_type: ResultPartitionType, reads_data_set: bool
    ) -> None:
        job_type = ReadingJob if reads_data_set else Fixture
        self.job = job_type(RESTARTS, result_type, kind, services=SlowServices())
        self.services: Any = self.job.services
        self.scheduler = self.job.scheduler
        self.task_managers: list[ResourceId] = []
        self.lost: set[ResourceId] = set()
        self.slot_count = 0
        self.last_status = self.scheduler.status
        self.scheduler.start()

    def act(self, action: str, number: int) -> None:
        """Let something happen; `number` chooses among what could."""
        attempts = list(self.services.descriptors)
        match action:
            case "answer" | "refuse" if self.services.asked:
                _, answer = self.services.asked.pop(number % len(self.services.asked))
                answer(action == "answer")
            case "report" if attempts:
                state = REPORTS[number % len(REPORTS)]
                error = USER_ERROR if state is S.FAILED else None
                self.report(attempts[number // len(REPORTS) % len(attempts)], state, error)
            case "settle":
                self.settle(S.RUNNING, held_back=HELD_BACK[number % len(HELD_BACK)])
            case "lose" if self.task_managers:
                self.lose(self.task_managers[number % len(self.task_managers)])
            case "fail":
                self.scheduler.fail_job(Failure(USER_ERROR if number % 4 else FATAL))
            case "cancel" if number % 8 == 0:
                self.scheduler.cancel()
            case _:
                self.job.clock.advance_ms(number)
        self.check()

    def offer_slots(self) -> None:
        """A new TaskManager offers two slots."""
        resource_id = ResourceId(f"tm-{len(self.task_managers)}")
        self.task_managers.append(resource_id)
        self.slot_count += 2
        offers = [
            SlotOffer(allocation(self.slot_count - index), index, SLOT_PROFILE)
            for index in range(2)
        ]
        self.scheduler.pool.offer(resource_id, offers, 0)
        self.scheduler.slots_changed()

    def lose(self, resource_id: ResourceId) -> None:
        """A TaskManager is gone; it may be heard of a second time."""
        self.lost.add(resource_id)
        self.services.ended |= {one for one, at in self.services.hosts.items() if at == resource_id}
        self.scheduler.lose_task_manager(resource_id, USER_ERROR)

    def report(
        self, attempt_id: ExecutionAttemptId, state: ExecutionState, error: ErrorInfo | None = None
    ) -> None:
        """A task says how far it is."""
        if state.is_terminal:
            self.services.ended.add(attempt_id)
        self.job.report(attempt_id, state, error)

    def end_fairly(self) -> None:
        """From now on all is answered, slots come, and tasks do what they are told."""
        for _ in range(30):
            if self.scheduler.has_ended:
                return
            self.settle(S.FINISHED)
        raise AssertionError(f"the job does not end: {self.scheduler.status}, {self.job.states}")

    def settle(self, state: ExecutionState, *, held_back: str = "") -> None:
        """Slots come, all is answered but what is held back, and tasks are cancelled or get to `state`."""
        if self.scheduler.is_waiting_for_slots:
            self.offer_slots()
        for _ in range(4):  # an answer may lead to the next question
            asked, self.services.asked = self.services.asked, []
            for what, answer in asked:
                if what == held_back:
                    self.services.asked.append((what, answer))
                else:
                    answer(True)
                    self.check()
        for execution in list(self.scheduler.executions):
            match execution.state:
                case S.CANCELING:
                    self.report(execution.attempt_id, S.CANCELED)
                case S.DEPLOYING | S.INITIALIZING | S.RUNNING:
                    self.report(execution.attempt_id, S.RUNNING)
                    self.report(execution.attempt_id, state)
                case _:
                    pass
            self.check()

    def check(self) -> None:
        """What holds at all times."""
        status = self.scheduler.status
        if self.last_status.is_globally_terminal_state():
            assert status is self.last_status, "a job that has ended stays so"
        self.last_status = status
        assert self.scheduler.history.restart_count <= RESTARTS
        deployed = [each for each in self.scheduler.executions if each.is_deployed]
        places = [(each.slot.allocation_id, _vertex(each)) for each in deployed if each.slot]
        assert len(set(places)) == len(deployed), "a slot holds a vertex once"
        for each in deployed:
            assert each.slot is not None and each.slot.resource_id not in self.lost
            is_reading = each.state not in (S.SCHEDULED, S.CANCELING)
            if is_reading and status is JobStatus.RUNNING:
                self.check_producers(each)

    def check_producers(self, consumer: Execution) -> None:
        """Whoever runs reads what the present attempts write."""
        present = set(self.job.attempts)
        descriptor = self.services.descriptors[consumer.attempt_id]
        for gate in descriptor.input_gates:
            for channel in gate.channels:
                written = channel.shuffle.partition_id
                is_kept = self.scheduler.cached_inputs.reads(written)
                assert written.producer in present or is_kept


def _vertex(execution: Execution) -> object:
    return execution.attempt_id.execution_vertex_id.vertex_id


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["settle"] * 6
            + ["report"] * 4
            + ["answer"] * 3
            + ["lose", "fail"] * 2
            + ["refuse", "cancel"]
        ),
        st.integers(0, 80),
    ),
    min_size=12,
    max_size=40,
)


STALE_RESTORE = [
    *[("settle", 0)] * 2, ("fail", 1), *[("settle", 3)] * 2, ("fail", 1), *[("settle", 3)] * 2, ("settle", 0),
]  # fmt: skip
"""An answer to a restart that failed comes in the next one."""
STALE_FIND = [
    *[("settle", 0)] * 2, ("fail", 1), *[("settle", 7)] * 2, ("fail", 1), *[("settle", 7)] * 2, ("answer", 0),
    ("answer", 1),
]  # fmt: skip
"""So does one to a question after a data set."""


@given(
    st.sampled_from([PartitionerKind.HASH, PartitionerKind.FORWARD]),
    st.sampled_from([ResultPartitionType.PIPELINED_BOUNDED, ResultPartitionType.BLOCKING]),
    st.booleans(),
    ACTIONS,
)
@example(PartitionerKind.HASH, ResultPartitionType.PIPELINED_BOUNDED, False, STALE_RESTORE)
@example(PartitionerKind.HASH, ResultPartitionType.PIPELINED_BOUNDED, True, STALE_FIND)
def test_a_job_is_whole_at_all_times_and_ends(
    kind: PartitionerKind,
    result_type: ResultPartitionType,
    reads_data_set: bool,
    actions: list[tuple[str, int]],
) -> None:
    history = History(kind, result_type, reads_data_set)
    for action, number in actions:
        history.act(action, number)
    history.end_fairly()
    statuses = history.services.statuses
    assert [one for one in statuses if one.is_globally_terminal_state()] == statuses[-1:]
    reached = {JobStatus.INITIALIZING.name, *(one.name for one in statuses)}
    assert set(history.scheduler.status_timestamps_ms) == reached
    is_finished = statuses[-1] is JobStatus.FINISHED
    assert is_finished == all(state is S.FINISHED for state in history.job.states) or (
        history.services.commit_count and not is_finished
    )
