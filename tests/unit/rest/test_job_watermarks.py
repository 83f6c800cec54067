"""The event time of sources and of the splits that they read, in the answer about all subtasks of a job."""

import asyncio
from types import SimpleNamespace
from typing import Any

from msgspec import structs

from headrace.core.clock import SystemClock
from headrace.core.ids import JobId
from headrace.rest.handlers.vertices import job_watermarks
from tests.unit.rest import sample_cluster
from tests.unit.rest.sample_cluster import RUNNING_JOB, SOURCE


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
    vertex = sample_cluster.vertex(SOURCE, source)
    subtask = structs.replace(vertex.subtasks[0], metrics=metrics)
    details = SimpleNamespace(vertices=[structs.replace(vertex, subtasks=(subtask,))])

    async def known(_: JobId) -> SimpleNamespace:
        return details

    view: Any = SimpleNamespace(details=known, clock=SystemClock())
    (found,) = asyncio.run(job_watermarks(view, RUNNING_JOB)).subtasks
    assert (found.output_watermark, found.idle_time, found.records_read) == (4, 7, 3)
    assert [(split.id, split.watermark) for split in found.splits] == [
        ("first.one", 5),
        ("second", None),
    ]
