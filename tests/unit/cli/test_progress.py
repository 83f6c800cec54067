"""Figures of the live display, computed from two snapshots of a job."""

import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from headrace.cli.progress import (
    SlotWait,
    SlotWaitDisplay,
    plain_line,
    rate_text,
    shorten,
    view_of,
    watermark_text,
)
from headrace.core.elements import MAX_WATERMARK
from headrace.core.ids import JobId, JobVertexId
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.gateways.job_master import JobDetails, SubtaskDetails, VertexDetails

VERTEX = JobVertexId(b"v" * 16)


def subtask(
    index: int, state: ExecutionState = ExecutionState.RUNNING, **metrics: float
) -> SubtaskDetails:
    return SubtaskDetails(index, 0, state, None, metrics)


def job(*subtasks: SubtaskDetails) -> JobDetails:
    vertex = VertexDetails(VERTEX, "Source -> Map", len(subtasks), subtasks)
    return JobDetails(JobId(b"j" * 16), "delays", JobStatus.RUNNING, {}, (vertex,))


def test_rates_are_sums_over_subtasks_since_the_last_snapshot() -> None:
    before = job(subtask(0, numRecordsIn=100), subtask(1, numRecordsIn=100))
    now = job(subtask(0, numRecordsIn=300), subtask(1, numRecordsIn=200))
    (vertex,) = view_of(now, before, interval_s=0.5, elapsed_s=3).vertices
    assert (vertex.records_in, vertex.records_per_second) == (500, 600.0)


def test_a_source_is_measured_by_what_it_gives() -> None:
    view = view_of(job(subtask(0, numRecordsOut=80)), job(subtask(0, numRecordsOut=30)), 1.0, 1.0)
    assert view.vertices[0].records_per_second == 50.0


def test_shares_are_averages_and_the_watermark_is_the_least() -> None:
    (vertex,) = view_of(
        job(
            subtask(0, busyTimeMsPerSecond=1000, backPressuredTimeMsPerSecond=0, currentInputWatermark=50),
            subtask(1, busyTimeMsPerSecond=500, backPressuredTimeMsPerSecond=400, currentInputWatermark=20),
        ),
        None, 1.0, 1.0,
    ).vertices  # fmt: skip
    assert (vertex.busy, vertex.back_pressured, vertex.watermark_ms) == (0.75, 0.2, 20)


def test_a_subtask_without_a_watermark_holds_the_vertex_without_one() -> None:
    view = view_of(job(subtask(0, currentInputWatermark=50), subtask(1)), None, 1.0, 1.0)
    assert view.vertices[0].watermark_ms is None


def test_a_vertex_that_has_ended_has_no_share_of_time_any_more() -> None:
    last = {"busyTimeMsPerSecond": 500.0, "backPressuredTimeMsPerSecond": 100.0}
    ended = SubtaskDetails(0, 0, ExecutionState.FINISHED, None, last)
    view = view_of(job(ended), None, 1.0, 1.0)
    (vertex,) = view.vertices
    assert (vertex.busy, vertex.back_pressured) == (None, None)
    assert "busy" not in plain_line(view) and "bp" not in plain_line(view)


def test_subtasks_that_have_ended_do_not_blur_the_share_of_those_that_run() -> None:
    ended = SubtaskDetails(0, 0, ExecutionState.FINISHED, None, {"busyTimeMsPerSecond": 1000.0})
    (vertex,) = view_of(job(ended, subtask(1, busyTimeMsPerSecond=200)), None, 1.0, 1.0).vertices
    assert vertex.busy == 0.2


def test_late_records_of_all_operators_are_one_figure() -> None:
    late = {"Window.numLateRecordsDropped": 3.0, "Other window.numLateRecordsDiverted": 4.0}
    subtasks = [SubtaskDetails(index, 0, ExecutionState.RUNNING, None, late) for index in (0, 1)]
    (vertex,) = view_of(job(*subtasks), None, 1.0, 1.0).vertices
    assert vertex.late_records == 14


def test_states_that_differ_are_all_named() -> None:
    mixed = job(subtask(0, ExecutionState.RUNNING), subtask(1, ExecutionState.FINISHED))
    assert view_of(mixed, None, 1.0, 1.0).vertices[0].state == "FINISHED/RUNNING"


def test_a_restarted_task_s_smaller_count_is_no_negative_rate() -> None:
    view = view_of(job(subtask(0, numRecordsIn=5)), job(subtask(0, numRecordsIn=500)), 1.0, 1.0)
    assert view.vertices[0].records_per_second == 0.0


@pytest.mark.parametrize(
    ("watermark", "text"),
    [
        (None, "-"),
        (1362127500000, "2013-03-01 08:45"),
        (MAX_WATERMARK, "end"),
        (int(float(MAX_WATERMARK)), "end"),
    ],
)
def test_watermarks_are_shown_as_times(watermark: int | None, text: str) -> None:
    assert watermark_text(watermark) == text


@pytest.mark.parametrize(
    ("rate", "text"), [(950, "950"), (12_345, "12.3 k"), (1_200_000, "1.20 M")]
)
def test_rates_are_shown_short(rate: float, text: str) -> None:
    assert rate_text(rate) == text


def test_long_names_are_cut() -> None:
    assert shorten("Source: flights -> Map", 10) == "Source: f…"


def test_a_plain_line_names_rate_watermark_and_shares() -> None:
    line = plain_line(
        view_of(
            job(subtask(0, busyTimeMsPerSecond=250, backPressuredTimeMsPerSecond=0)), None, 1.0, 2.0
        )
    )
    assert "Source -> Map 0/s wm - busy 25% bp 0%" in line


LACKS = "job 6a6a6a6a lacks 3 of 6 slot(s); 1 worker(s) wait for a place on the host (for {} s)"


def test_what_a_job_waits_for_is_told_after_a_while_and_once() -> None:
    wait = SlotWait()
    told = [wait.line(LACKS.format(second), second * 1000.0) for second in range(0, 600, 2)]
    assert [line for line in told if line] == [f"the job waits for slots: {LACKS.format(6)}"]


def test_another_cause_is_told_at_most_every_minute() -> None:
    wait = SlotWait()
    wait.line(LACKS, 0)
    assert wait.line(LACKS, 5_000)
    assert wait.line("the ResourceManager cannot be reached", 64_999) == ""
    assert "cannot be reached" in wait.line("the ResourceManager cannot be reached", 65_000)


def test_a_job_that_waits_again_is_told_of_again() -> None:
    wait = SlotWait()
    wait.line(LACKS, 0)
    assert wait.line(LACKS, 5_000)
    assert wait.line("", 70_000) == ""
    assert wait.line(LACKS, 80_000) == ""
    assert wait.line(LACKS, 85_000)


def test_without_a_display_the_wait_goes_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = msgspec.structs.replace(job(), explanation=LACKS.format(9))
    ended = msgspec.structs.replace(job(), status=JobStatus.FINISHED)
    answers = iter([TimeoutError(), lacking, lacking, lacking, ended])
    has_asked_all = threading.Event()

    def result(_: float) -> JobDetails:
        answer = next(answers)
        if answer is ended:
            has_asked_all.set()
        if isinstance(answer, TimeoutError):
            raise answer
        return answer

    client: Any = SimpleNamespace(get_job_details=lambda: SimpleNamespace(result=result))
    monkeypatch.setattr("headrace.cli.progress.PLAIN_INTERVAL_S", 0.001)
    monkeypatch.setattr("headrace.cli.progress._WAIT_PATIENCE_MS", 0.0)
    display = SlotWaitDisplay()
    display.watch(client)
    assert has_asked_all.wait(10)
    display.stop()
    assert capsys.readouterr().err == f"the job waits for slots: {LACKS.format(9)}\n"
