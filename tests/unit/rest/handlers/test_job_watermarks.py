"""The event time of sources and of the splits that they read, in the answer about all subtasks of a job."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from msgspec import structs

from headrace.core.clock import SystemClock
from headrace.core.ids import JobId
from headrace.rest.handlers.vertices import job_watermarks
from headrace.rest.models.vertices import SubtaskWatermarks
from tests.unit.rest import sample_cluster
from tests.unit.rest.sample_cluster import RUNNING_JOB, SOURCE

SPLIT = "Source: a.b.split"


def event_times(*metrics: dict[str, float]) -> Sequence[SubtaskWatermarks]:
    """Return the rows of a vertex with a running subtask of each of these metrics."""
    vertex = sample_cluster.vertex(SOURCE, "Source: a.b")
    subtasks = tuple(
        structs.replace(vertex.subtasks[0], subtask_index=index, metrics=each)
        for index, each in enumerate(metrics)
    )
    details = SimpleNamespace(vertices=[structs.replace(vertex, subtasks=subtasks)])

    async def known(_: JobId) -> SimpleNamespace:
        return details

    view: Any = SimpleNamespace(details=known, clock=SystemClock())
    return asyncio.run(job_watermarks(view, RUNNING_JOB)).subtasks


def test_sources_tell_when_they_read_last_and_splits_how_far_they_are() -> None:
    source = "Source: a.b"
    metrics = {
        "currentOutputWatermark": 4.0,
        f"{source}.sourceIdleTime": 7.0,
        f"{source}.numRecordsOut": 3.0,
        "Map.numRecordsOut": 9.0,
        f"{source}.split.first.one.watermark.currentWatermark": 5.0,
        f"{source}.split.first.one.watermark.idleTimeMsPerSecond": 0.0,
        f"{source}.split.second.watermark.idleTimeMsPerSecond": 0.0,
    }
    (found,) = event_times(metrics)
    assert (found.output_watermark, found.idle_time, found.records_read) == (4, 7, 3)
    assert [(split.id, split.watermark) for split in found.splits] == [
        ("first.one", 5),
        ("second", None),
    ]


def test_each_subtask_has_its_own_figures_and_splits_whatever_names_its_metrics_share() -> None:
    found = event_times(
        {"currentOutputWatermark": 4.0, f"{SPLIT}.one.watermark.currentWatermark": 5.0},
        {"currentOutputWatermark": 6.0, f"{SPLIT}.one.watermark.currentWatermark": 7.0},
        {"currentOutputWatermark": 8.0, f"{SPLIT}.two.watermark.currentWatermark": 9.0},
        {"currentInputWatermark": 3.0},
        {},
    )
    assert [
        (each.subtask, each.output_watermark, [(one.id, one.watermark) for one in each.splits])
        for each in found
    ] == [
        (0, 4, [("one", 5)]),
        (1, 6, [("one", 7)]),
        (2, 8, [("two", 9)]),
        (3, None, []),
        (4, None, []),
    ]
    assert [each.input_watermark for each in found] == [None, None, None, 3, None]


class WatchedMetrics(dict[str, float]):
    """Metrics that remember which threads look through their names."""

    def __init__(self, metrics: dict[str, float]) -> None:
        super().__init__(metrics)
        self.readers: list[str] = []

    def __iter__(self) -> Iterator[str]:
        self.readers.append(threading.current_thread().name)
        return super().__iter__()


def test_metrics_of_many_subtasks_are_looked_through_off_the_loop_and_once() -> None:
    metrics = [WatchedMetrics({"currentInputWatermark": 1.0}) for _ in range(100)]
    assert len(event_times(*metrics)) == 100
    assert {tuple(each.readers) for each in metrics} == {("headrace-watermarks",)}
