"""Answers of the routes that the dashboard uses, for the jobs of `golden_jobs`; each is named as its route."""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tests.dashboard.golden_jobs import (
    JOBS,
    NO_WATERMARK,
    NOW,
    TASK_MANAGERS,
    GoldenJob,
    Vertex,
    attempt,
    job_details,
    job_info,
    lived_ms,
)

Query: TypeAlias = Mapping[str, str]
Answer: TypeAlias = Callable[[Sequence[str], Query], Any]


class NotFoundError(Exception):
    """The fake cluster has no such thing: 404 with this text."""


def job_of(job_id: str) -> GoldenJob:
    """Find a job by its id."""
    for job in JOBS.values():
        if job.id == job_id:
            return job
    raise NotFoundError(f"Job {job_id} not found")


def vertex_of(job: GoldenJob, vertex_id: str) -> Vertex:
    """Find a vertex of a job by its id."""
    for vertex in job.vertices:
        if vertex.id == vertex_id:
            return vertex
    raise NotFoundError(f"JobVertex {vertex_id} not found")


def configuration(_: Sequence[str], query: Query) -> Any:
    """`/config`: polls come often, so that tests see several."""
    return {
        "refresh-interval": 500,
        "timezone-name": "Coordinated Universal Time",
        "timezone-offset": 0,
        "flink-version": "2.3.0",
        "flink-revision": "headrace 0.2.0",
        "features": {
            "web-submit": False,
            "web-cancel": True,
            "web-rescale": False,
            "web-history": False,
            "web-spark": False,
        },
    }


def overview(_: Sequence[str], query: Query) -> Any:
    return {
        "taskmanagers": len(TASK_MANAGERS),
        "slots-total": 12,
        "slots-available": 3,
        "jobs-running": 3,
        "jobs-finished": 1,
        "jobs-cancelled": 0,
        "jobs-failed": 0,
        "flink-version": "2.3.0",
        "flink-commit": "0123456",
    }


def jobs(_: Sequence[str], query: Query) -> Any:
    return {"jobs": [job_details(job) for job in JOBS.values()]}


def job(parts: Sequence[str], query: Query) -> Any:
    return job_info(job_of(parts[0]))


def job_config(parts: Sequence[str], query: Query) -> Any:
    found = job_of(parts[0])
    return {
        "jid": found.id,
        "name": found.name,
        "execution-config": {
            "restart-strategy": "Cluster level default restart strategy",
            "job-parallelism": 4,
            "object-reuse-mode": False,
            "user-config": {"input": "/data/in", "s3.secret-key": "******"},
        },
        "settings": {"execution.checkpointing.interval": "10 s", "parallelism.default": "4"},
    }


def job_exceptions(parts: Sequence[str], query: Query) -> Any:
    found = job_of(parts[0])
    return {"exceptionHistory": {"entries": list(found.exceptions), "truncated": False}}


def job_accumulators(parts: Sequence[str], query: Query) -> Any:
    job_of(parts[0])
    rows = [{"name": "bad lines", "type": "IntCounter", "value": "17"}]
    return {
        "job-accumulators": [],
        "user-task-accumulators": rows,
        "serialized-user-task-accumulators": {},
    }


def metrics_history(parts: Sequence[str], query: Query) -> Any:
    """Forty points from the start of a job to its end, or to now: it begins slowly, and has ended slowly."""
    found = job_of(parts[0])
    end = found.ended if found.ended > 0 else NOW
    points = 40
    angle = math.pi if found.ended > 0 else math.pi / 2
    shape = [math.sin(angle * (point + 0.5) / points) ** 0.5 for point in range(points)]

    def column(most: float | None) -> list[float | None]:
        return [None if most is None else round(most * each, 1) for each in shape]

    return {
        "jid": found.id,
        "interval": (end - found.begun) // points,
        "timestamps": [
            found.begun + (end - found.begun) * (at + 1) // points for at in range(points)
        ],
        "vertices": [
            {
                "id": vertex.id,
                "name": vertex.name,
                "records-in-per-second": column(None if vertex.is_source else 680.0 / (place + 1)),
                "records-out-per-second": column(
                    None if place == len(found.vertices) - 1 else 1_360.0
                ),
                "busy": column(240.0 * (place + 1)),
                "back-pressured": column(150.0 if place == 0 else 0.0),
                "watermark-lag": column(2_400.0 + 700.0 * place),
            }
            for place, vertex in enumerate(found.vertices)
        ],
    }


def metric_list(values: Mapping[str, float | int], query: Query) -> Any:
    """Names, or the values of those that are asked for."""
    if "get" not in query:
        return [{"id": name} for name in values]
    return [
        {"id": name, "value": str(values[name])}
        for name in query["get"].split(",")
        if name in values
    ]


def combined(values: Mapping[str, Sequence[float]], query: Query) -> Any:
    """Names, or min, max, avg, sum and skew over subtasks."""
    if "get" not in query:
        return [{"id": name} for name in values]
    found: list[dict[str, Any]] = []
    for name in query["get"].split(","):
        if name in values:
            of = values[name]
            average = sum(of) / len(of)
            skew = sum(abs(value - average) for value in of) / len(of) / (average or 1) * 100
            found.append(
                {
                    "id": name,
                    "min": float(min(of)),
                    "max": float(max(of)),
                    "avg": average,
                    "sum": float(sum(of)),
                    "skew": skew,
                }
            )
    return found


def job_metrics(parts: Sequence[str], query: Query) -> Any:
    found = job_of(parts[0])
    values = {
        "uptime": lived_ms(found),
        "numRestarts": 3 if found.state == "RESTARTING" else 0,
        "lastCheckpointDuration": found.checkpoint_ms,
        "lastCheckpointSize": 181_233,
        "numberOfCompletedCheckpoints": 74,
    }
    return metric_list(values, query)


def _task_metrics(vertex: Vertex) -> dict[str, list[float]]:
    subtasks = vertex.subtasks
    counted = [subtask.received or subtask.sent for subtask in subtasks]
    whole = sum(counted) or 1
    rates = [vertex.records_per_second * each / whole for each in counted]
    values: dict[str, list[float]] = {
        "busyTimeMsPerSecond": [subtask.busy * 1000 for subtask in subtasks],
        "backPressuredTimeMsPerSecond": [subtask.back_pressured * 1000 for subtask in subtasks],
        "idleTimeMsPerSecond": [(1 - s.busy - s.back_pressured) * 1000 for s in subtasks],
        "numRecordsInPerSecond": [0.0] * len(subtasks) if vertex.is_source else rates,
        "numRecordsOutPerSecond": rates,
        "numRecordsIn": [float(subtask.received) for subtask in subtasks],
        "numRecordsOut": [float(subtask.sent) for subtask in subtasks],
        "mailboxQueueSize": [0.0] * len(subtasks),
    }
    # A gauge is absent before the first watermark, and no fake subtask has one where another has none.
    if all(subtask.watermark != NO_WATERMARK for subtask in subtasks):
        watermarks = [float(subtask.watermark) for subtask in subtasks]
        values |= {} if vertex.is_source else {"currentInputWatermark": watermarks}
        values |= {"currentOutputWatermark": watermarks} if any(s.sent for s in subtasks) else {}
    return values


def vertex_subtask_metrics(parts: Sequence[str], query: Query) -> Any:
    return combined(_task_metrics(vertex_of(job_of(parts[0]), parts[1])), query)


def vertex_metrics(parts: Sequence[str], query: Query) -> Any:
    found = vertex_of(job_of(parts[0]), parts[1])
    values: dict[str, float | int] = {}
    for name, of in _task_metrics(found).items():
        values |= {f"{index}.{name}": value for index, value in enumerate(of)}
    if found.is_source:
        operator = re.sub(r"[^A-Za-z0-9_]", "_", found.name.split(" -> ")[0])
        for index, subtask in enumerate(found.subtasks):
            values[f"{index}.{operator}.sourceIdleTime"] = subtask.idle_ms
            if subtask.split and subtask.watermark != NO_WATERMARK:
                name = f"{index}.{operator}.split.{subtask.split}.watermark.currentWatermark"
                values[name] = subtask.watermark
    return metric_list(values, query)


def vertex(parts: Sequence[str], query: Query) -> Any:
    found_job = job_of(parts[0])
    found = vertex_of(found_job, parts[1])
    subtasks = [attempt(found_job, index, each) for index, each in enumerate(found.subtasks)]
    return {
        "id": found.id,
        "name": found.name,
        "parallelism": len(found.subtasks),
        "maxParallelism": found.max_parallelism,
        "now": NOW,
        "subtasks": subtasks,
        "aggregated": {
            part: _spreads([each[part] for each in subtasks])
            for part in ("metrics", "status-duration")
        },
    }


def _spreads(figures: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Spread of each figure over the subtasks."""
    found: dict[str, dict[str, float]] = {}
    for name in (name for name in figures[0] if not name.endswith("-complete")):
        ordered = sorted(each[name] for each in figures)
        shares = {"median": 0.5, "p25": 0.25, "p75": 0.75, "p95": 0.95}
        found[name] = {
            "min": ordered[0],
            "max": ordered[-1],
            "avg": sum(ordered) / len(ordered),
            "sum": sum(ordered),
        } | {at: ordered[math.ceil(share * len(ordered)) - 1] for at, share in shares.items()}
    return found


def numbered_attempt(parts: Sequence[str], query: Query) -> Any:
    found_job = job_of(parts[0])
    subtask = vertex_of(found_job, parts[1]).subtasks[int(parts[2])]
    number = int(parts[3])
    if number >= subtask.attempt - 2:
        earlier = dataclasses.replace(subtask, attempt=number, status="FAILED", sent=100)
        return attempt(found_job, int(parts[2]), earlier)
    raise NotFoundError(f"Invalid attempt num {number}")


def subtask_times(parts: Sequence[str], query: Query) -> Any:
    found_job = job_of(parts[0])
    found = vertex_of(found_job, parts[1])
    begun = found_job.begun + 700
    return {
        "id": found.id,
        "name": found.name,
        "now": NOW,
        "subtasks": [
            {
                "subtask": index,
                "endpoint": TASK_MANAGERS[index % 2].partition("-")[0],
                "duration": lived_ms(found_job) - 900,
                "timestamps": {
                    "CREATED": begun,
                    "SCHEDULED": begun + 3,
                    "DEPLOYING": begun + 43,
                    "INITIALIZING": begun + 64,
                    "RUNNING": begun + 200,
                    "FINISHED": found_job.ended if subtask.status == "FINISHED" else 0,
                    **dict.fromkeys(("CANCELING", "CANCELED", "FAILED", "RECONCILING"), 0),
                },
            }
            for index, subtask in enumerate(found.subtasks)
        ],
    }


def back_pressure(parts: Sequence[str], query: Query) -> Any:
    found = vertex_of(job_of(parts[0]), parts[1])
    most = max(subtask.back_pressured for subtask in found.subtasks)
    return {
        "status": "ok",
        "backpressureLevel": _level(most),
        "backpressure-level": _level(most),
        "end-timestamp": NOW,
        "subtasks": [
            {
                "subtask": index,
                "backpressureLevel": _level(subtask.back_pressured),
                "backpressure-level": _level(subtask.back_pressured),
                "ratio": subtask.back_pressured,
                "busyRatio": subtask.busy,
                "idleRatio": 1 - subtask.busy - subtask.back_pressured,
            }
            for index, subtask in enumerate(found.subtasks)
        ],
    }


def _level(ratio: float) -> str:
    return "ok" if ratio <= 0.1 else "low" if ratio <= 0.5 else "high"


def watermarks(parts: Sequence[str], query: Query) -> Any:
    found = vertex_of(job_of(parts[0]), parts[1])
    if found.is_source:
        return []
    return [
        {"id": f"{index}.currentInputWatermark", "value": str(subtask.watermark)}
        for index, subtask in enumerate(found.subtasks)
    ]


def flame_graph(parts: Sequence[str], query: Query) -> Any:
    found_job = job_of(parts[0])
    vertex_of(found_job, parts[1])
    if found_job.state == "FINISHED":
        return {"endTimestamp": -1}
    if found_job.state == "RESTARTING":
        return {"endTimestamp": -3}
    busy = [
        _frame(
            "pipeline.enrich:87",
            [_frame("pipeline.lookup:103", [], 310), _frame("json.loads:346", [], 120)],
            60,
        ),
        _frame("headrace.state.heap.get:61", [], 90),
        _frame("headrace.network.partition.emit:140", [_frame("pyarrow.ipc.write:12", [], 75)], 15),
    ]
    waiting = [_frame("headrace.task.mailbox.take:77", [_frame("threading.wait:331", [], 330)], 0)]
    below = {"ON_CPU": busy, "OFF_CPU": waiting}.get(query.get("type", "FULL"), busy + waiting)
    task = _frame("headrace.task.stream_task.run:210", below, 0)
    return {"endTimestamp": NOW - 4_000, "data": _frame("root", [task], 0)}


def _frame(name: str, children: list[dict[str, Any]], own: int) -> dict[str, Any]:
    return {
        "name": name,
        "value": own + sum(child["value"] for child in children),
        "children": children,
    }
