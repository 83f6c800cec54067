"""Translations of subtasks and vertices: their times, I/O metrics and spreads. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headrace.core.lifecycle import ExecutionState
from headrace.gateways.job_master import AttemptDetails, SubtaskDetails, VertexDetails
from headrace.metrics import names
from headrace.metrics.combination import combined_value
from headrace.metrics.instruments import interpolated_quantile
from headrace.rest.models.jobs import IOMetrics
from headrace.rest.models.vertices import Aggregated, Attempt, Spread

AnyAttempt = SubtaskDetails | AttemptDetails
_S = ExecutionState
_BEFORE_END: Final = (_S.CREATED, _S.SCHEDULED, _S.DEPLOYING, _S.INITIALIZING, _S.RUNNING)
_IO_METRICS: Final[Mapping[str, names.MetricName]] = {
    "write-records": names.NUM_RECORDS_OUT,
    "read-records": names.NUM_RECORDS_IN,
    "write-bytes": names.NUM_BYTES_OUT,
    "read-bytes": names.NUM_BYTES_IN,
    "accumulated-backpressured-time": names.ACCUMULATE_BACK_PRESSURED_TIME,
    "accumulated-idle-time": names.ACCUMULATE_IDLE_TIME,
    "accumulated-busy-time": names.ACCUMULATE_BUSY_TIME,
}


def vertex_status(subtasks: Iterable[SubtaskDetails]) -> ExecutionState:
    """Return one state for a vertex from those of its subtasks.

    Source: Flink ExecutionJobVertex.getAggregateJobVertexState.
    """
    counts = Counter(subtask.state for subtask in subtasks)
    for state in (_S.FAILED, _S.CANCELING, _S.CANCELED, _S.INITIALIZING, _S.RUNNING):
        if counts[state]:
            return state
    if counts[_S.FINISHED]:
        return _S.FINISHED if counts[_S.FINISHED] == counts.total() else _S.RUNNING
    return _S.CREATED


def start_ms(attempt: AnyAttempt) -> int:
    """Return the time at which an attempt was deployed, or -1."""
    return attempt.timestamps_ms.get(_S.DEPLOYING.name, -1)


def end_ms(attempt: AnyAttempt) -> int:
    """Return the time at which an attempt ended, or -1."""
    if not attempt.state.is_terminal:
        return -1
    return attempt.timestamps_ms.get(attempt.state.name, -1)


def duration_ms(begin_ms: int, end_ms: int, now_ms: int) -> int:
    """Return a duration, up to now if there is no end yet, and -1 if there is no begin."""
    if begin_ms < 0:
        return -1
    return max(0, (end_ms if end_ms >= 0 else now_ms) - begin_ms)


def group_times(subtasks: Sequence[SubtaskDetails], now_ms: int) -> tuple[int, int, int]:
    """Return start, end and duration of several subtasks together."""
    starts = [begin for subtask in subtasks if (begin := start_ms(subtask)) >= 0]
    begin_ms = min(starts, default=-1)
    ends = [end_ms(subtask) for subtask in subtasks]
    last_ms = max(ends, default=-1) if all(end >= 0 for end in ends) else -1
    return begin_ms, last_ms, duration_ms(begin_ms, last_ms, now_ms)


def status_durations(attempt: AnyAttempt, now_ms: int) -> dict[str, int]:
    """Return the milliseconds spent in each state before the end; -1 for a state that was not entered."""
    times = attempt.timestamps_ms
    found: dict[str, int] = {}
    for state in _BEFORE_END:
        begin_ms = times.get(state.name)
        if begin_ms is None:
            found[state.name] = -1
            continue
        later = (moment for moment in times.values() if moment > begin_ms)
        last_ms = min(later, default=begin_ms if attempt.state.is_terminal else now_ms)
        found[state.name] = max(0, last_ms - begin_ms)
    return found


def io_metrics(metrics: Mapping[str, float], *, is_complete: bool) -> IOMetrics:
    """Return traffic and times of a subtask, or of several with combined metrics."""

    def count(name: names.MetricName) -> int:
        return int(metrics.get(name.name, 0))

    busy = metrics.get(names.ACCUMULATE_BUSY_TIME.name)
    return IOMetrics(
        read_bytes=count(names.NUM_BYTES_IN),
        read_bytes_complete=is_complete,
        write_bytes=count(names.NUM_BYTES_OUT),
        write_bytes_complete=is_complete,
        read_records=count(names.NUM_RECORDS_IN),
        read_records_complete=is_complete,
        write_records=count(names.NUM_RECORDS_OUT),
        write_records_complete=is_complete,
        accumulated_backpressured_time=count(names.ACCUMULATE_BACK_PRESSURED_TIME),
        accumulated_idle_time=count(names.ACCUMULATE_IDLE_TIME),
        accumulated_busy_time="NaN" if busy is None else busy,
    )


def combined_io_metrics(subtasks: Sequence[SubtaskDetails]) -> IOMetrics:
    """Return traffic and times of several subtasks, summed."""
    snapshots = [subtask.metrics for subtask in subtasks]
    combined = {
        name.name: value
        for name in _IO_METRICS.values()
        if (value := combined_value(name.name, snapshots)) is not None
    }
    return io_metrics(combined, is_complete=all(subtask.metrics for subtask in subtasks))


def aggregated(subtasks: Sequence[SubtaskDetails], now_ms: int) -> Aggregated:
    """Return the distributions of figures over subtasks."""
    durations = [status_durations(subtask, now_ms) for subtask in subtasks]
    return Aggregated(
        metrics={
            shown: spread([subtask.metrics.get(name.name, 0) for subtask in subtasks])
            for shown, name in _IO_METRICS.items()
        },
        status_duration={
            state.name: spread([max(0, each[state.name]) for each in durations])
            for state in _BEFORE_END
        },
    )


def spread(values: Sequence[float]) -> Spread:
    """Return extremes, mean and percentiles; zeros if there are no values."""
    ordered = sorted(values) or [0.0]
    return Spread(
        min=ordered[0],
        max=ordered[-1],
        avg=sum(ordered) / len(ordered),
        sum=sum(ordered),
        median=interpolated_quantile(ordered, 0.5),
        p25=interpolated_quantile(ordered, 0.25),
        p75=interpolated_quantile(ordered, 0.75),
        p95=interpolated_quantile(ordered, 0.95),
    )


def attempt_of(subtask_index: int, attempt: AnyAttempt, now_ms: int) -> Attempt:
    """Return one attempt of a subtask in the model for dashboards."""
    begin_ms, last_ms = start_ms(attempt), end_ms(attempt)
    return Attempt(
        subtask=subtask_index,
        status=attempt.state.name,
        attempt=attempt.attempt_number,
        endpoint=attempt.endpoint or "(unassigned)",
        start_time=begin_ms,
        start_time_again=begin_ms,
        end_time=last_ms,
        duration=duration_ms(begin_ms, last_ms, now_ms),
        metrics=io_metrics(attempt.metrics, is_complete=bool(attempt.metrics)),
        taskmanager_id="(unassigned)" if attempt.resource_id is None else str(attempt.resource_id),
        status_duration=status_durations(attempt, now_ms),
    )


def state_counts(subtasks: Iterable[SubtaskDetails]) -> dict[str, int]:
    """Return the number of subtasks in each state, by the state's name."""
    counts = Counter(subtask.state for subtask in subtasks)
    return {state.name: counts[state] for state in ExecutionState} | {"RECONCILING": 0}


def subtasks_by_task_manager(vertex: VertexDetails) -> dict[str, list[SubtaskDetails]]:
    """Return a vertex's subtasks by the id of the TaskManager on which they run."""
    found: dict[str, list[SubtaskDetails]] = {}
    for subtask in vertex.subtasks:
        place = "(unassigned)" if subtask.resource_id is None else str(subtask.resource_id)
        found.setdefault(place, []).append(subtask)
    return found
