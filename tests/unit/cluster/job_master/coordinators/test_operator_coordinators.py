"""Operator coordinators: who hears which event, and the records that wait for the client."""

import asyncio
from collections.abc import Callable

import pytest

from headrace.cluster.job_master.coordinators.collect_coordinator import (
    CollectBufferExceededError,
    CollectCoordinator,
)
from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.cluster.job_master.coordinators.operator_coordinators import OperatorCoordinators
from headrace.core.config import Settings
from headrace.core.errors import NotInstalledError
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId, OperatorId, ResourceId
from headrace.core.operator_events import cut, mark_of
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.errors import CoordinatorBusyError
from headrace.gateways.job_master import CollectedPiece, CollectedResults
from tests.unit.cluster.cluster_samples import JOB, attempt, job_graph, vertex, vertex_id

OPERATOR = OperatorId((1).to_bytes(16, "big"))
LOCATION = TaskManagerLocation(ResourceId("tm"), "host", 1, None, "id")


class NotingCoordinator:
    """Keeps what it hears."""

    def __init__(self, context: CoordinatorContext, payload: bytes) -> None:
        self.context = context
        self.payload = payload
        self.heard: list[object] = []

    def start(self) -> None:
        self.heard.append("started")

    def subtask_ready(self, attempt_id: ExecutionAttemptId, location: TaskManagerLocation) -> None:
        self.heard.append(("ready", attempt_id.subtask_index))

    def subtask_failed(self, attempt_id: ExecutionAttemptId) -> None:
        self.heard.append(("failed", attempt_id.subtask_index))

    def handle_event(self, attempt_id: ExecutionAttemptId, payload: bytes) -> None:
        if payload == b"busy" and "busy" not in self.heard:
            self.heard.append("busy")
            raise CoordinatorBusyError("later")
        self.heard.append(payload)

    async def job_finishing(self) -> None:
        self.heard.append("finishing")

    async def close(self) -> None:
        self.heard.append("closed")
        raise OSError("does not close")


def new_coordinators(
    kind: type[NotingCoordinator] | None = None,
) -> tuple[OperatorCoordinators, NotingCoordinator, list[tuple[object, ...]]]:
    made: list[NotingCoordinator] = []
    sent: list[tuple[object, ...]] = []

    def create(context: CoordinatorContext, payload: bytes) -> NotingCoordinator:
        made.append((kind or NotingCoordinator)(context, payload))
        return made[-1]

    def send(subtask: ExecutionVertexId, operator: OperatorId, payload: bytes) -> None:
        sent.append((subtask, operator, payload))

    coordinators = OperatorCoordinators(
        job_graph((vertex(1, 2, coordinator="noting"), vertex(2, 2))),
        {"noting": create},
        settings=Settings(),
        send_event=send,
        run_async=_run,
        fail_job=lambda error: None,
    )
    return coordinators, made[0], sent


def _run(action: Callable[[], None]) -> None:
    action()


def test_a_coordinator_hears_of_the_subtasks_of_its_own_vertex() -> None:
    coordinators, noting, _ = new_coordinators()
    coordinators.start()
    coordinators.subtask_ready(attempt(1, vertex=1), LOCATION)
    coordinators.subtask_ready(attempt(0, vertex=2), LOCATION)
    coordinators.subtask_failed(attempt(1, vertex=1))
    assert noting.heard == ["started", ("ready", 1), ("failed", 1)]


def test_events_are_counted_for_the_coordinator_s_own_vertex_and_repeated_ones_once() -> None:
    coordinators, noting, _ = new_coordinators()
    noting.context.metric_group.gauge("open", lambda: 7)
    for _ in range(2):
        coordinators.handle_event(attempt(0), OPERATOR, 0, b"one")
    noting.context.send_event(1, b"answer")
    (reading,) = coordinators.operator_metrics()
    name = reading.variables["operator_name"]
    assert coordinators.metrics_of(vertex_id(1)) == {
        f"{name}.coordinator.numEventsIn": 1,
        f"{name}.coordinator.numEventsOut": 1,
        f"{name}.coordinator.open": 7,
    }
    assert coordinators.metrics_of(vertex_id(2)) == {}
    assert {sample.path for sample in reading.samples} == {("coordinator",)}
    assert reading.variables["task_id"] == str(vertex_id(1))


def test_a_repeated_event_is_delivered_once() -> None:
    coordinators, noting, _ = new_coordinators()
    coordinators.handle_event(attempt(0), OPERATOR, 0, b"one")
    coordinators.handle_event(attempt(0), OPERATOR, 0, b"one")
    coordinators.handle_event(attempt(0), OPERATOR, 1, b"two")
    assert noting.heard == [b"one", b"two"]


def test_events_are_numbered_anew_for_each_attempt() -> None:
    coordinators, noting, _ = new_coordinators()
    coordinators.handle_event(attempt(0), OPERATOR, 0, b"one")
    coordinators.subtask_failed(attempt(0))
    coordinators.handle_event(attempt(0, number=1), OPERATOR, 0, b"again")
    assert noting.heard == [b"one", ("failed", 0), b"again"]


def test_a_refused_event_counts_when_it_comes_again() -> None:
    coordinators, noting, _ = new_coordinators()
    with pytest.raises(CoordinatorBusyError):
        coordinators.handle_event(attempt(0), OPERATOR, 0, b"busy")
    coordinators.handle_event(attempt(0), OPERATOR, 0, b"busy")
    assert noting.heard == ["busy", b"busy"]


def test_a_coordinator_reaches_its_subtasks_by_index() -> None:
    _, noting, sent = new_coordinators()
    noting.context.send_event(1, b"hello")
    assert sent == [(ExecutionVertexId(vertex_id(1), 1), OPERATOR, b"hello")]


def test_the_job_works_off_a_backlog_as_long_as_any_operator_does() -> None:
    coordinators, noting, _ = new_coordinators()
    heard: list[bool] = []
    noting.context.report_backlog(True)
    coordinators.when_backlog_changes(heard.append)
    noting.context.report_backlog(True)
    assert heard == [True]
    noting.context.report_backlog(False)
    noting.context.report_backlog(False)
    assert heard == [True, False]


class CheckpointedNoting(NotingCoordinator):
    """Has a part in checkpoints."""

    def checkpoint(self, checkpoint_id: int) -> bytes:
        self.heard.append(("taken", checkpoint_id))
        return b"state %d" % checkpoint_id

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        self.heard.append(("completed", checkpoint_id))

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.heard.append(("aborted", checkpoint_id))

    def reset(self, checkpoint_id: int | None, state: bytes | None) -> None:
        self.heard.append(("reset", checkpoint_id, state))

    def subtask_reset(self, subtask_index: int, checkpoint_id: int | None) -> None:
        self.heard.append(("subtask reset", subtask_index, checkpoint_id))


def test_after_its_snapshot_a_coordinator_speaks_behind_the_subtasks_part() -> None:
    coordinators, noting, sent = new_coordinators(CheckpointedNoting)
    assert coordinators.checkpoint(7) == {OPERATOR: b"state 7"}
    noting.context.send_event(0, b"one")
    noting.context.send_event(1, b"two")
    noting.context.send_event(0, b"three")
    assert sent == [] and not coordinators.can_be_snapshotted
    coordinators.acknowledged(attempt(0), 7)
    assert [payload for _, _, payload in sent] == [b"one", b"three"]
    coordinators.checkpoint_completed(7)
    assert [payload for _, _, payload in sent] == [b"one", b"three", b"two"]
    assert coordinators.can_be_snapshotted and noting.heard[-1] == ("completed", 7)


def test_what_waits_goes_on_when_the_checkpoint_comes_to_nothing() -> None:
    coordinators, noting, sent = new_coordinators(CheckpointedNoting)
    coordinators.checkpoint(7)
    noting.context.send_event(0, b"one")
    coordinators.checkpoint_aborted(7)
    assert [payload for _, _, payload in sent] == [b"one"]


def test_what_waits_for_an_attempt_ends_with_it() -> None:
    coordinators, noting, sent = new_coordinators(CheckpointedNoting)
    coordinators.checkpoint(7)
    noting.context.send_event(0, b"one")
    coordinators.subtask_failed(attempt(0))
    noting.context.send_event(0, b"for the next one")
    coordinators.checkpoint_aborted(7)
    assert [payload for _, _, payload in sent] == [b"for the next one"]


def test_a_coordinator_without_state_is_left_out_of_checkpoints() -> None:
    coordinators, noting, _ = new_coordinators()
    assert coordinators.checkpoint(7) == {}
    coordinators.reset(7, {})
    coordinators.checkpoint_completed(7)
    assert noting.heard == []


def test_a_restored_job_resets_its_coordinators_and_a_restored_subtask_only_says_so() -> None:
    coordinators, noting, _ = new_coordinators(CheckpointedNoting)
    coordinators.reset(3, {OPERATOR: b"state 3"})
    coordinators.reset(None, {})
    coordinators.subtask_reset(ExecutionVertexId(vertex_id(1), 1), 3)
    coordinators.subtask_reset(ExecutionVertexId(vertex_id(2), 1), 3)
    assert noting.heard == [
        ("reset", 3, b"state 3"),
        ("reset", None, None),
        ("subtask reset", 1, 3),
    ]


def test_closing_closes_all_and_tells_what_went_wrong() -> None:
    coordinators, noting, _ = new_coordinators()
    asyncio.run(coordinators.commit())
    errors = asyncio.run(coordinators.close())
    assert noting.heard == ["finishing", "closed"]
    assert [str(error) for error in errors] == ["does not close"]


def test_an_unknown_coordinator_is_an_error_that_names_the_operator() -> None:
    with pytest.raises(
        NotInstalledError, match="operator 'operator 1' needs the coordinator 'kafka'"
    ):
        OperatorCoordinators(
            job_graph((vertex(1, 1, coordinator="kafka"),)),
            {},
            settings=Settings(),
            send_event=lambda *_: None,
            run_async=_run,
            fail_job=lambda error: None,
        )


def new_collect(
    parallelism: int = 1,
    settings: dict[str, str] | None = None,
    fail_job: Callable[[BaseException], None] = lambda error: None,
) -> CollectCoordinator:
    context = CoordinatorContext(
        job_id=JOB,
        operator_id=OPERATOR,
        operator_name="Collect",
        parallelism=parallelism,
        settings=Settings(settings),
        send_event=lambda index, payload: None,
        run_async=_run,
        fail_job=fail_job,
    )
    return CollectCoordinator(context, b"")


def whole(content: bytes) -> bytes:
    (event,) = cut(content)
    return event


def contents(results: CollectedResults) -> tuple[bytes, ...]:
    return tuple(piece.content for piece in results.pieces)


def test_fetching_from_an_offset_forgets_what_stands_before_it() -> None:
    collect = new_collect()
    for payload in (b"a", b"b", b"c"):
        collect.handle_event(attempt(0), whole(payload))
    assert contents(collect.fetch(0, 2)) == (b"a", b"b")
    assert contents(collect.fetch(0, 2)) == (b"a", b"b"), "a lost answer can be asked for again"
    answer = collect.fetch(2, 2)
    assert (answer.offset, contents(answer), answer.is_finished) == (2, (b"c",), False)


def test_the_last_batch_says_that_it_is_the_last() -> None:
    collect = new_collect(parallelism=2)
    collect.handle_event(attempt(0), whole(b"a"))
    collect.handle_event(attempt(0), b"")
    assert not collect.fetch(0, 10).is_finished
    collect.handle_event(attempt(1), whole(b"b"))
    collect.handle_event(attempt(1), b"")
    assert not collect.fetch(0, 1).is_finished
    assert collect.fetch(1, 1).is_finished


def test_records_beyond_the_bound_are_refused_until_the_client_has_fetched() -> None:
    collect = new_collect(settings={"headrace.collect.buffer-size": "10"})
    collect.handle_event(attempt(0), whole(b"x" * 50))
    with pytest.raises(CoordinatorBusyError):
        collect.handle_event(attempt(0), whole(b"y"))
    collect.fetch(1, 1)
    collect.handle_event(attempt(0), whole(b"y"))
    assert contents(collect.fetch(1, 1)) == (b"y",)


def test_too_many_records_between_two_checkpoints_fail_the_job_with_a_word_of_what_to_do() -> None:
    failures: list[BaseException] = []
    settings = {
        "headrace.collect.buffer-size": "10",
        "execution.checkpointing.interval": "1s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
    }
    collect = new_collect(settings=settings, fail_job=failures.append)
    for checkpoint_id in (1, 2):  # what a checkpoint covers counts no more
        collect.handle_event(attempt(0), whole(b"x" * 40))
        collect.handle_event(attempt(0), mark_of(checkpoint_id))
        collect.checkpoint_completed(checkpoint_id)
        collect.fetch(checkpoint_id, 1)
    assert failures == []
    for _ in range(3):
        collect.handle_event(attempt(0), whole(b"x" * 20))
    (error,) = failures
    assert isinstance(error, CollectBufferExceededError)
    assert not error.recoverable
    assert "60 bytes" in str(error)
    assert "headrace.collect.buffer-size" in str(error)
    assert "execution.checkpointing.interval" in str(error)


def test_after_the_end_of_the_job_nothing_follows_what_is_left() -> None:
    collect = new_collect()
    collect.handle_event(attempt(0), whole(b"a"))
    asyncio.run(collect.close())
    assert collect.fetch(0, 10).is_finished


def test_the_pieces_of_a_large_row_are_kept_within_the_bound_and_name_their_attempt() -> None:
    collect = new_collect(parallelism=2, settings={"headrace.collect.buffer-size": "10"})
    first, last = cut(b"0123456789abcdef", 8)
    collect.handle_event(attempt(0), first)
    with pytest.raises(CoordinatorBusyError):
        collect.handle_event(attempt(1), whole(b"other"))
    (piece,) = collect.fetch(0, 10).pieces
    assert piece == CollectedPiece(0, 0, False, b"01234567")
    collect.fetch(1, 10)
    collect.handle_event(attempt(0, number=1), last)
    (piece,) = collect.fetch(1, 10).pieces
    assert (piece.attempt_number, piece.is_last, piece.content) == (1, True, b"89abcdef")


def test_an_answer_stays_below_the_frame() -> None:
    collect = new_collect(settings={"pekko.framesize": "1000"})
    for _ in range(4):
        collect.handle_event(attempt(0), whole(b"x" * 200))
    assert len(collect.fetch(0, 10).pieces) == 2
