"""Figures of a running job at one moment, read from the answers of its cluster; nothing here asks or draws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.core.error_text import on_one_line, without_controls
from headrace.metrics import names
from headrace.metrics.event_time import event_time_of

METRICS: Final = (
    names.BUSY_TIME.name,
    names.BACK_PRESSURED_TIME.name,
    names.IDLE_TIME.name,
    names.NUM_RECORDS_IN_PER_SECOND.name,
    names.NUM_RECORDS_OUT_PER_SECOND.name,
    names.CURRENT_INPUT_WATERMARK.name,
    names.CURRENT_OUTPUT_WATERMARK.name,
)
"""Metrics of a vertex that are shown; the server aggregates them over its subtasks."""
_MS_PER_SECOND: Final = 1000.0

Aggregates = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class VertexFigures:
    """A vertex; shares of time are in [0, 1], means over its subtasks; None if no subtask has reported any."""

    number: int
    vertex_id: str
    name: str
    state: str
    parallelism: int
    busy: float | None = None
    busy_most: float | None = None
    """Share of time of the busiest subtask."""
    back_pressured: float | None = None
    idle: float | None = None
    records_in_per_second: float | None = None
    records_out_per_second: float | None = None
    watermark_ms: int | None = None


@dataclass(frozen=True)
class ShownCheckpoints:
    """Counts of checkpoints, and the last completed one; its id is None before the first one."""

    completed: int
    failed: int
    in_progress: int
    last_id: int | None = None
    last_ended_ms: int = 0
    last_duration_ms: int = 0
    last_size_bytes: int = 0
    failure: str = ""
    """Reason of the last failed one, if it is newer than the last completed one."""


@dataclass(frozen=True)
class JobFigures:
    """All shown figures of a job."""

    job_id: str
    name: str
    state: str
    now_ms: int
    duration_ms: int
    vertices: tuple[VertexFigures, ...]
    restarts: int | None = None
    checkpoints: ShownCheckpoints | None = None
    """Checkpoints; None if checkpointing is off."""
    failure: str = ""
    """The last exception, in one line."""
    held_lock: str = ""
    """TaskManager that does not answer because C code holds its interpreter lock, with the function."""


def vertex_figures(number: int, vertex: Mapping[str, Any], answer: object) -> VertexFigures:
    """Return the figures of a vertex of `/jobs/<id>`; `answer` has its aggregated metrics, if there is one."""
    found = aggregates_of(answer)
    return VertexFigures(
        number,
        str(vertex["id"]),
        on_one_line(str(vertex["name"])),
        str(vertex["status"]),
        int(vertex["parallelism"]),
        busy=_share(found, names.BUSY_TIME.name, "avg"),
        busy_most=_share(found, names.BUSY_TIME.name, "max"),
        back_pressured=_share(found, names.BACK_PRESSURED_TIME.name, "avg"),
        idle=_share(found, names.IDLE_TIME.name, "avg"),
        records_in_per_second=_value(found, names.NUM_RECORDS_IN_PER_SECOND.name, "sum"),
        records_out_per_second=_value(found, names.NUM_RECORDS_OUT_PER_SECOND.name, "sum"),
        # The least of the subtasks that have one.
        watermark_ms=event_time_of(lambda row: _value(found, row.name, "min")),
    )


def aggregates_of(answer: object) -> Aggregates:
    """Return the numbers of an answer with aggregated metrics, by name; values that are not numbers are left out."""
    if not isinstance(answer, Sequence):
        return {}
    found: dict[str, dict[str, float]] = {}
    for one in answer:
        if isinstance(one, Mapping) and "id" in one:
            numbers = {
                str(key): float(value)
                for key, value in one.items()
                if isinstance(value, int | float) and value == value
            }
            found[str(one["id"])] = numbers
    return found


def checkpoint_figures(answer: Mapping[str, Any]) -> ShownCheckpoints:
    """Read the figures from the answer of `/jobs/<id>/checkpoints`."""
    counts, latest = answer.get("counts") or {}, answer.get("latest") or {}
    # Periodic checkpoints and savepoints share one sequence of ids; REST returns the last of each kind separately.
    done = [latest.get(kind) or {} for kind in ("completed", "savepoint")]
    completed = max(done, key=lambda one: one.get("id", -1))
    failed = latest.get("failed") or {}
    is_newer = failed.get("id", -1) > completed.get("id", -1)
    return ShownCheckpoints(
        int(counts.get("completed", 0)),
        int(counts.get("failed", 0)),
        int(counts.get("in_progress", 0)),
        completed.get("id"),
        int(completed.get("latest_ack_timestamp", 0)),
        int(completed.get("end_to_end_duration", 0)),
        int(completed.get("checkpointed_size", completed.get("state_size", 0))),
        without_controls(str(failed.get("failure_message") or "")) if is_newer else "",
    )


def _value(found: Aggregates, name: str, kind: str) -> float | None:
    return found.get(name, {}).get(kind)


def _share(found: Aggregates, name: str, kind: str) -> float | None:
    value = _value(found, name, kind)
    return None if value is None else share_of_time(value)


def share_of_time(ms_per_second: float) -> float:
    """Return a share in [0, 1]; means of shares measured at different moments may exceed it a little."""
    return min(1.0, max(0.0, ms_per_second / _MS_PER_SECOND))
