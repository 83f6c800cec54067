"""Golden answer about the event time of a job's running subtasks."""

from collections.abc import Sequence
from typing import Any

from tests.dashboard.golden_answers import Query, job_of
from tests.dashboard.golden_jobs import NO_WATERMARK, NOW, Vertex


def job_watermarks(parts: Sequence[str], query: Query) -> Any:
    found = job_of(parts[0])
    return {
        "jid": found.id,
        "now": NOW,
        "subtasks": [
            _event_time(each, index, found.begun)
            for each in found.vertices
            for index, subtask in enumerate(each.subtasks)
            if subtask.status == "RUNNING"
        ],
    }


def _event_time(of: Vertex, index: int, begun: int) -> dict[str, Any]:
    subtask = of.subtasks[index]
    # Null before the first watermark, and no fake subtask has one where another has none.
    known = all(each.watermark != NO_WATERMARK for each in of.subtasks)
    mark = subtask.watermark if known else None
    own = None if subtask.watermark == NO_WATERMARK else subtask.watermark
    return {
        "vertex": of.id,
        "subtask": index,
        "start-time": begun + 700,
        "input-watermark": None if of.is_source else mark,
        "output-watermark": mark if any(each.sent for each in of.subtasks) else None,
        "idle-time": subtask.idle_ms if of.is_source else None,
        "records-read": subtask.sent if of.is_source else None,
        "splits": [{"id": subtask.split, "watermark": own}]
        if of.is_source and subtask.split
        else [],
    }
