"""CheckpointProtocol: what holds for any order of answers, losses, repetitions and failures."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.checkpoint.errors import CheckpointFailureReason as R
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.cluster.job_master.checkpointing.protocol.events import (
    BrakesChanged,
    CheckpointRequested,
    CheckpointStepFailed,
    CheckpointTimedOut,
    CoordinatorAction,
    CoordinatorsSnapshotted,
    FailRequest,
    NotifyAborted,
    NotifyComplete,
    PeriodicTimerFired,
    PrepareCheckpoint,
    Publish,
    SchedulingStarted,
    SchedulingStopped,
    SendTriggers,
    SnapshotCoordinators,
    TaskGone,
)
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import CheckpointRequest
from headrace.core.barriers import SnapshotKind
from tests.unit.cluster.job_master.checkpointing.protocol.coordinator_world import (
    PLAN,
    SINK,
    SOURCE,
    STEPS,
    CoordinatorWorld,
    published,
)


@dataclass
class History:
    """Checks each action against everything before it."""

    completed: list[int] = field(default_factory=list[int])
    aborted: list[int] = field(default_factory=list[int])
    published: set[int] = field(default_factory=set[int])
    savepoints: set[int] = field(default_factory=set[int])
    ids: list[int] = field(default_factory=list[int])
    answered: Counter[int] = field(default_factory=Counter[int])
    requested: set[int] = field(default_factory=set[int])
    publishing: int = 0

    def check(self, action: CoordinatorAction) -> None:
        match action:
            case SnapshotCoordinators(checkpoint):
                assert not self.ids or checkpoint.checkpoint_id > self.ids[-1]
                self.ids.append(checkpoint.checkpoint_id)
                if checkpoint.kind.is_savepoint:
                    self.savepoints.add(checkpoint.checkpoint_id)
            case Publish(checkpoint):
                assert checkpoint.is_acknowledged
                assert checkpoint.checkpoint_id not in (*self.aborted, *self.published)
                self.publishing += 1
                assert self.publishing == 1, "one at a time"
            case NotifyComplete(checkpoint, completed):
                checkpoint_id = checkpoint.checkpoint_id
                assert completed.checkpoint_id == checkpoint_id
                assert checkpoint_id in self.published, "told before it was durable"
                self._end(checkpoint_id)
                earlier = [each for each in self.completed if each not in self.savepoints]
                if checkpoint_id not in self.savepoints:
                    assert not earlier or checkpoint_id > max(earlier)
                self.completed.append(checkpoint_id)
                self._answer(checkpoint.request)
            case NotifyAborted(checkpoint, _):
                assert checkpoint.checkpoint_id not in self.published, "savepoints too"
                self._end(checkpoint.checkpoint_id)
                self.aborted.append(checkpoint.checkpoint_id)
            case FailRequest(request):
                self._answer(request)
            case _:
                pass

    def _answer(self, request: CheckpointRequest) -> None:
        self.answered[request.number] += 1
        assert self.answered[request.number] == 1, "answered twice"

    def _end(self, checkpoint_id: int) -> None:
        assert checkpoint_id not in self.completed and checkpoint_id not in self.aborted


STEP_ANSWERS = st.tuples(st.just("answer"), st.integers(0, 5), st.booleans())
EVENTS = st.one_of(
    st.tuples(st.just("request"), st.sampled_from(list(SnapshotKind))),
    STEP_ANSWERS,
    STEP_ANSWERS,
    STEP_ANSWERS,
    st.tuples(st.just("ack"), st.integers(1, 9), st.sampled_from(PLAN.to_wait_for)),
    st.tuples(st.just("ack"), st.integers(1, 9), st.sampled_from(PLAN.to_wait_for)),
    st.tuples(
        st.just("decline"),
        st.integers(1, 9),
        st.sampled_from([R.CHECKPOINT_DECLINED, R.CHECKPOINT_DECLINED_TASK_CLOSING]),
    ),
    st.tuples(st.just("timeout"), st.integers(1, 9)),
    st.tuples(st.just("gone"), st.sampled_from([SOURCE, SINK]), st.booleans()),
    st.tuples(st.just("start")),
    st.tuples(st.just("stop")),
    st.tuples(st.just("time"), st.floats(0, 500)),
    st.tuples(st.just("brake"), st.integers(0, 3), st.booleans()),
)


@given(
    events=st.lists(EVENTS, max_size=80),
    max_concurrent=st.integers(1, 3),
    interval_ms=st.sampled_from([None, 50.0, 200.0]),
)
def test_every_checkpoint_ends_once_in_rising_order_and_only_what_is_durable_is_told(
    events: list[tuple[object, ...]], max_concurrent: int, interval_ms: float | None
) -> None:
    configuration = CheckpointCoordinatorConfiguration(
        interval_ms, min_pause_ms=20, max_concurrent=max_concurrent, tolerable_failure_count=1
    )
    world = CoordinatorWorld(configuration, held=STEPS)
    history = History()
    open_steps: list[CoordinatorAction] = []
    for event in events:
        for action in _send(world, history, open_steps, event):
            history.check(action)
            if isinstance(action, STEPS):
                open_steps.append(action)
    for action in world.handle(SchedulingStopped()):
        history.check(action)
    publishing = [each for each in open_steps if isinstance(each, Publish)]
    for step in publishing:
        history.published.add(step.checkpoint.checkpoint_id)
        for action in world.handle(published(step.checkpoint)):
            history.check(action)
    assert world.coordinator.pending == (), "nothing is left over"
    assert all(history.answered[number] == 1 for number in history.requested)


def _send(
    world: CoordinatorWorld,
    history: History,
    open_steps: list[CoordinatorAction],
    event: tuple[object, ...],
) -> list[CoordinatorAction]:
    match event:
        case ("request", SnapshotKind() as kind):
            world.next_number += 1
            history.requested.add(world.next_number)
            return world.handle(CheckpointRequested(world.next_number, kind))
        case ("answer", int(position), bool(succeeds)):
            if not open_steps:
                return []
            step = open_steps.pop(position % len(open_steps))
            return _answer(world, history, step, succeeds)
        case ("ack", int(checkpoint_id), attempt_id):
            return world.acknowledge(checkpoint_id, attempt_id)  # type: ignore[arg-type]
        case ("decline", int(checkpoint_id), R() as reason):
            return world.decline(checkpoint_id, reason)
        case ("timeout", int(checkpoint_id)):
            return world.handle(CheckpointTimedOut(checkpoint_id))
        case ("gone", attempt_id, bool(is_failure)):
            return world.handle(TaskGone(attempt_id, is_failure))  # type: ignore[arg-type]
        case ("start",):
            return world.handle(SchedulingStarted())
        case ("stop",):
            return world.handle(SchedulingStopped())
        case ("time", float(duration_ms)):
            world.now_ms += duration_ms
            if world.timer is not None and world.timer[1] <= world.now_ms:
                return world.handle(PeriodicTimerFired(world.timer[0]))
            return []
        case ("brake", int(count), bool(is_full)):
            return world.handle(BrakesChanged(count, is_full))
        case _:
            raise AssertionError(event)


def _answer(
    world: CoordinatorWorld, history: History, step: CoordinatorAction, succeeds: bool
) -> list[CoordinatorAction]:
    reason = R.IO_EXCEPTION
    match step:
        case PrepareCheckpoint(request) if succeeds:
            return world.handle(world.prepared(request))
        case SnapshotCoordinators(checkpoint) if succeeds:
            return world.handle(CoordinatorsSnapshotted(checkpoint.checkpoint_id, {}))
        case Publish(checkpoint) if succeeds:
            history.publishing -= 1
            history.published.add(checkpoint.checkpoint_id)
            return world.handle(published(checkpoint))
        case Publish(checkpoint):
            history.publishing -= 1
            number, reason = checkpoint.request.number, R.FINALIZE_CHECKPOINT_FAILURE
        case PrepareCheckpoint(request):
            number = request.number
        case SnapshotCoordinators(checkpoint):
            number = checkpoint.request.number
        case _:
            raise AssertionError(step)
    return world.handle(CheckpointStepFailed(number, reason, "no"))


@given(
    seed=st.integers(0, 1_000),
    interval_ms=st.floats(10, 300),
    min_pause_ms=st.floats(0, 400),
    durations_ms=st.lists(st.floats(0, 700), min_size=1, max_size=15),
)
def test_periodic_checkpoints_keep_the_least_pause_after_a_completion(
    seed: int, interval_ms: float, min_pause_ms: float, durations_ms: list[float]
) -> None:
    world = CoordinatorWorld(
        CheckpointCoordinatorConfiguration(interval_ms, min_pause_ms=min_pause_ms), seed=seed
    )
    world.start()
    first_ms = world.timer[1] if world.timer is not None else -1.0
    assert min_pause_ms <= first_ms <= max(interval_ms, min_pause_ms)
    completed_ms: float | None = None
    for checkpoint_id, duration_ms in enumerate(durations_ms, start=1):
        while not world.coordinator.pending:
            assert world.timer is not None
            world.pass_time(world.timer[1])
        assert world.of(SendTriggers)[-1].checkpoint.checkpoint_id == checkpoint_id
        if completed_ms is not None:
            assert world.now_ms - completed_ms >= min_pause_ms - 1e-6
        world.pass_time(world.now_ms + duration_ms)
        completed_ms = world.now_ms
        world.acknowledge(checkpoint_id)
        # Without a pause to speak of, what was waiting has begun at once.
        assert not world.coordinator.pending or min_pause_ms < 1e-6


def test_an_id_that_is_given_out_once_more_is_told_with_the_newest() -> None:
    world = CoordinatorWorld()
    world.start()
    for checkpoint_id in (1, 2):
        world.request()
        world.acknowledge(checkpoint_id)
    world.next_id = 1
    with pytest.raises(AssertionError, match="id 1 was assigned after id 2"):
        world.request()
