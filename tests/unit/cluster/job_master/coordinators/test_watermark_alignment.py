"""Alignment of sources: the pure bounds, and the coordinators that answer readers and hold sources' own inside them."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.cluster.job_master.coordinators.operator_coordinators import OperatorCoordinators
from headrace.cluster.job_master.coordinators.watermark_alignment import WatermarkAlignment
from headrace.core.config import Settings
from headrace.core.elements import MAX_WATERMARK
from headrace.core.errors import NotInstalledError
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId, OperatorId, ResourceId
from headrace.core.operator_events import (
    ALIGNED_COORDINATOR,
    AlignedSource,
    ReaderProgress,
    WatermarkBound,
    WatermarkReported,
    decode_aligned_event,
    encode_aligned_source,
    encode_alignment_event,
    wrap_own_event,
)
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.graph.job_graph import JobVertex
from tests.unit.cluster.cluster_samples import attempt, job_graph, vertex, vertex_id

ACTIVE, IDLE, FINISHED = ReaderProgress
LOCATION = TaskManagerLocation(ResourceId("tm"), "host", 1, None, "id")


def _source(number: int) -> OperatorId:
    return OperatorId(number.to_bytes(16, "big"))


def test_readers_may_go_as_far_as_the_slowest_of_their_group_and_the_drift() -> None:
    alignment = WatermarkAlignment()
    assert alignment.bound_ms("g", 10) is None
    alignment.reported("g", (_source(1), 0), WatermarkReported(ACTIVE, 100))
    alignment.reported("g", (_source(2), 0), WatermarkReported(ACTIVE, 40))
    alignment.reported("other", (_source(3), 0), WatermarkReported(ACTIVE, 1))
    assert alignment.bound_ms("g", 10) == 50
    alignment.reported("g", (_source(2), 0), WatermarkReported(ACTIVE, 200))
    assert alignment.bound_ms("g", 10) == 110


@pytest.mark.parametrize("progress", [IDLE, FINISHED])
def test_readers_that_are_idle_or_have_finished_hold_nobody_back(progress: ReaderProgress) -> None:
    alignment = WatermarkAlignment()
    alignment.reported("g", (_source(1), 0), WatermarkReported(ACTIVE, 40))
    alignment.reported("g", (_source(1), 1), WatermarkReported(ACTIVE, 100))
    alignment.reported("g", (_source(1), 0), WatermarkReported(progress, 40))
    assert alignment.bound_ms("g", 10) == 110
    alignment.reported("g", (_source(1), 1), WatermarkReported(progress, 40))
    assert alignment.bound_ms("g", 10) is None


def test_an_idle_reader_that_speaks_again_counts_again() -> None:
    alignment = WatermarkAlignment()
    alignment.reported("g", (_source(1), 0), WatermarkReported(IDLE, 40))
    alignment.reported("g", (_source(1), 0), WatermarkReported(ACTIVE, 41))
    assert alignment.bound_ms("g", 10) == 51


def test_a_bound_does_not_overflow() -> None:
    alignment = WatermarkAlignment()
    alignment.reported("g", (_source(1), 0), WatermarkReported(ACTIVE, MAX_WATERMARK - 1))
    assert alignment.bound_ms("g", 10) == MAX_WATERMARK


REPORTS = st.lists(
    st.tuples(
        st.sampled_from("gh"),
        st.integers(1, 2),
        st.integers(0, 2),
        st.sampled_from([*ReaderProgress, None]),
        st.integers(-100, 100),
    )
)


@given(REPORTS, st.integers(1, 50))
def test_the_bound_is_that_of_the_last_reports(
    reports: list[tuple[str, int, int, ReaderProgress | None, int]], drift_ms: int
) -> None:
    alignment = WatermarkAlignment()
    last: dict[tuple[str, int, int], int] = {}
    for group, source, subtask, progress, watermark_ms in reports:
        key = (group, source, subtask)
        if progress is None:
            alignment.forgotten(group, (_source(source), subtask))
        else:
            report = WatermarkReported(progress, watermark_ms)
            alignment.reported(group, (_source(source), subtask), report)
        if progress is ACTIVE:
            last[key] = watermark_ms
        else:
            last.pop(key, None)
        for name in "gh":
            reached = [time for (its_group, _, _), time in last.items() if its_group == name]
            wanted = min(reached) + drift_ms if reached else None
            assert alignment.bound_ms(name, drift_ms) == wanted


class _Own:
    """A source's own coordinator, which takes part in checkpoints."""

    def __init__(self, context: CoordinatorContext, payload: bytes) -> None:
        self.context = context
        self.heard: list[object] = [payload]

    def start(self) -> None:
        self.heard.append("start")

    def subtask_ready(self, attempt_id: ExecutionAttemptId, location: TaskManagerLocation) -> None:
        self.heard.append(("ready", attempt_id.subtask_index))

    def subtask_failed(self, attempt_id: ExecutionAttemptId) -> None:
        self.heard.append(("failed", attempt_id.subtask_index))

    def handle_event(self, attempt_id: ExecutionAttemptId, payload: bytes) -> None:
        self.heard.append(payload)
        self.context.send_event(attempt_id.subtask_index, payload[::-1])

    async def job_finishing(self) -> None:
        self.heard.append("finishing")

    async def close(self) -> None:
        self.heard.append("close")

    def checkpoint(self, checkpoint_id: int) -> bytes:
        return b"state %d" % checkpoint_id

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        self.heard.append(("completed", checkpoint_id))

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.heard.append(("aborted", checkpoint_id))

    def reset(self, checkpoint_id: int | None, state: bytes | None) -> None:
        self.heard.append(("reset", checkpoint_id, state))

    def subtask_reset(self, subtask_index: int, checkpoint_id: int | None) -> None:
        self.heard.append(("subtask reset", subtask_index, checkpoint_id))


def _vertex(number: int, group: str, own: tuple[str, bytes] | None) -> JobVertex:
    made = vertex(number, 2, coordinator=ALIGNED_COORDINATOR)
    payload = encode_aligned_source(AlignedSource(group, 10, own))
    return replace(made, operators=(replace(made.operators[0], coordinator_payload=payload),))


class _Job:
    """Two aligned sources of one group; the first has a coordinator of its own."""

    def __init__(self) -> None:
        self.own: list[_Own] = []
        self.sent: list[tuple[int, int, Any]] = []
        self.numbers: dict[ExecutionAttemptId, int] = {}

        def create(context: CoordinatorContext, payload: bytes) -> _Own:
            self.own.append(_Own(context, payload))
            return self.own[-1]

        def send(subtask: ExecutionVertexId, operator_id: OperatorId, payload: bytes) -> None:
            number = int(str(operator_id), 16)
            self.sent.append((number, subtask.subtask_index, decode_aligned_event(payload)))

        vertices = (_vertex(1, "g", ("own", b"payload")), _vertex(2, "g", None))
        self.coordinators = OperatorCoordinators(
            job_graph(vertices),
            {"own": create},
            settings=Settings(),
            send_event=send,
            run_async=lambda action: action(),
            fail_job=lambda error: None,
        )

    def event(self, attempt_id: ExecutionAttemptId, payload: bytes) -> None:
        number = self.numbers.get(attempt_id, 0)
        self.numbers[attempt_id] = number + 1
        operator_id = _source(int(str(attempt_id.execution_vertex_id.vertex_id), 16))
        self.coordinators.handle_event(attempt_id, operator_id, number, payload)

    def report(
        self, attempt_id: ExecutionAttemptId, watermark_ms: int, progress: ReaderProgress = ACTIVE
    ) -> None:
        self.event(attempt_id, encode_alignment_event(WatermarkReported(progress, watermark_ms)))


def test_each_report_is_answered_with_the_bound_over_all_sources_of_the_group() -> None:
    job = _Job()
    job.report(attempt(0, 1), 100)
    job.report(attempt(1, 2), 30)
    job.report(attempt(0, 1), 100)
    job.report(attempt(1, 2), 30, FINISHED)
    job.report(attempt(0, 1), 100)
    assert job.sent == [
        (1, 0, WatermarkBound(110)),
        (2, 1, WatermarkBound(40)),
        (1, 0, WatermarkBound(40)),
        (1, 0, WatermarkBound(110)),
    ]


def test_a_failed_reader_holds_nobody_back() -> None:
    job = _Job()
    job.report(attempt(0, 2), 30)
    job.coordinators.subtask_failed(attempt(0, 2))
    job.report(attempt(0, 1), 100)
    assert job.sent[-1] == (1, 0, WatermarkBound(110))


def test_the_sources_own_coordinator_hears_and_says_what_it_would_without_alignment() -> None:
    job = _Job()
    job.coordinators.start()
    job.coordinators.subtask_ready(attempt(1, 1), LOCATION)
    job.event(attempt(1, 1), wrap_own_event(b"abc"))
    job.coordinators.subtask_failed(attempt(1, 1))
    asyncio.run(job.coordinators.commit())
    assert asyncio.run(job.coordinators.close()) == []
    own = job.own[0].heard
    assert own == [b"payload", "start", ("ready", 1), b"abc", ("failed", 1), "finishing", "close"]
    assert job.sent == [(1, 1, b"cba")]


def test_checkpoints_are_those_of_the_sources_own_coordinator() -> None:
    job = _Job()
    first, second = _source(1), _source(2)
    assert job.coordinators.checkpoint(7) == {first: b"state 7", second: b""}
    job.coordinators.checkpoint_completed(7)
    job.coordinators.checkpoint(8)
    job.coordinators.checkpoint_aborted(8)
    job.coordinators.reset(7, {first: b"state 7", second: b""})
    job.coordinators.subtask_reset(ExecutionVertexId(vertex_id(1), 1), 7)
    job.coordinators.subtask_reset(ExecutionVertexId(vertex_id(2), 1), 7)
    assert job.own[0].heard[1:] == [
        ("completed", 7),
        ("aborted", 8),
        ("reset", 7, b"state 7"),
        ("subtask reset", 1, 7),
    ]


def test_an_unknown_own_coordinator_is_an_error_that_names_the_operator() -> None:
    with pytest.raises(NotInstalledError, match="'operator 1' needs the coordinator 'nobody's'"):
        OperatorCoordinators(
            job_graph((_vertex(1, "g", ("nobody's", b"")), vertex(2, 2))),
            {},
            settings=Settings(),
            send_event=lambda subtask, operator_id, payload: None,
            run_async=lambda action: action(),
            fail_job=lambda error: None,
        )


@given(st.binary())
def test_own_events_come_out_as_they_went_in(payload: bytes) -> None:
    assert decode_aligned_event(wrap_own_event(payload)) == payload


@given(st.sampled_from(ReaderProgress), st.integers(-(2**63), 2**63 - 1))
def test_events_of_alignment_survive_the_journey(progress: ReaderProgress, time: int) -> None:
    report = WatermarkReported(progress, time)
    assert decode_aligned_event(encode_alignment_event(report)) == report
    assert decode_aligned_event(encode_alignment_event(WatermarkBound(time))) == WatermarkBound(
        time
    )
    assert decode_aligned_event(encode_alignment_event(WatermarkBound(None))) == WatermarkBound(
        None
    )


def test_an_event_that_is_neither_is_refused() -> None:
    with pytest.raises(ValueError, match="does not begin with b'x'"):
        decode_aligned_event(b"xyz")
