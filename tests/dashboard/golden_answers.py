"""Answers of the routes that the dashboard uses, for the jobs of `golden_jobs`; each is named as its route."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from tests.dashboard.golden_jobs import (
    JOBS,
    NO_WATERMARK,
    NOW,
    TASK_MANAGERS,
    GoldenJob,
    Subtask,
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
    return {
        "id": found.id,
        "name": found.name,
        "parallelism": len(found.subtasks),
        "maxParallelism": found.max_parallelism,
        "now": NOW,
        "subtasks": [attempt(found_job, i, subtask) for i, subtask in enumerate(found.subtasks)],
        "aggregated": {"metrics": {}, "status-duration": {}},
    }


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


def stats(values: Iterable[float]) -> dict[str, Any]:
    """Minimum, maximum, average and percentiles."""
    ordered = sorted(values)
    at = {
        f"p{str(share).replace('.', '')}": float(ordered[math.ceil(share / 100 * len(ordered)) - 1])
        for share in (50, 90, 95, 99, 99.9)
    }
    return {
        "min": int(ordered[0]),
        "max": int(ordered[-1]),
        "avg": int(sum(ordered) / len(ordered)),
    } | at


def _checkpoint(found: GoldenJob, number: int, *, detailed: bool = False) -> dict[str, Any]:
    subtask_count = sum(len(each.subtasks) for each in found.vertices)
    is_failed = number % 4 == 2 and found.checkpoints_failed > 0
    is_pending = number == 75 and found.state == "RUNNING"
    is_savepoint = number == 70
    took = int(found.checkpoint_ms * (1 + 0.3 * math.sin(number)))
    end = found.ended if found.ended > 0 else NOW
    triggered = end - (75 - number) * found.checkpoint_interval_ms - 4_000
    figures = {
        "checkpointed_size": 0 if is_failed else 181_233 + number * 900,
        "state_size": 0 if is_failed else 2_481_233 + number * 9_000,
        "end_to_end_duration": -1 if is_pending else took,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": subtask_count,
        "num_acknowledged_subtasks": subtask_count - 1
        if is_failed or is_pending
        else subtask_count,
        "latest_ack_timestamp": -1 if is_pending else triggered + took,
    }
    kind = "in_progress" if is_pending else "failed" if is_failed else "completed"
    answer = {
        "className": kind,
        "id": number,
        "status": kind.upper(),
        "is_savepoint": is_savepoint,
        "savepointFormat": "CANONICAL" if is_savepoint else None,
        "trigger_timestamp": triggered,
        "checkpoint_type": "SAVEPOINT" if is_savepoint else "CHECKPOINT",
        "tasks": {
            each.id: figures
            | {
                "id": number,
                "status": kind.upper(),
                "num_subtasks": len(each.subtasks),
                "num_acknowledged_subtasks": len(each.subtasks),
            }
            for each in found.vertices
        }
        if detailed
        else {},
    } | figures
    if kind == "completed":
        folder = "savepoint-bbbbbb-0123456789ab" if is_savepoint else f"{found.id}/chk-{number}"
        answer |= {"external_path": f"file:/data/checkpoints/{folder}", "discarded": False}
    elif kind == "failed":
        answer |= {
            "failure_timestamp": triggered + took,
            "failure_message": "Checkpoint expired before completing.\n  at subtask 1 of Sink: files of orders",
        }
    return answer


def _history(found: GoldenJob) -> list[dict[str, Any]]:
    last = 75 if found.state == "RUNNING" else 74
    return [_checkpoint(found, number) for number in range(last, last - 10, -1)]


def checkpoints(parts: Sequence[str], query: Query) -> Any:
    found = job_of(parts[0])
    history = _history(found)
    done = [each for each in history if each["className"] == "completed"]
    failed = [each for each in history if each["className"] == "failed"]
    return {
        "counts": {
            "restored": 3 if found.state == "RESTARTING" else 0,
            "total": 75,
            "in_progress": sum(each["className"] == "in_progress" for each in history),
            "completed": 74 - len(failed),
            "failed": len(failed),
        },
        "summary": {
            name: stats(each[name] for each in done)
            for name in (
                "checkpointed_size", "state_size", "end_to_end_duration", "alignment_buffered", "processed_data",
                "persisted_data",
            )
        },
        "latest": {
            "completed": next(each for each in done if not each["is_savepoint"]),
            "savepoint": next((each for each in done if each["is_savepoint"]), None),
            "failed": failed[0] if failed else None,
            "restored": {
                "id": 71,
                "restore_timestamp": NOW - 40_000,
                "is_savepoint": False,
                "external_path": f"file:/data/checkpoints/{found.id}/chk-71",
            }
            if found.state == "RESTARTING"
            else None,
        },
        "history": history,
    }  # fmt: skip


def checkpoint_config(parts: Sequence[str], query: Query) -> Any:
    found = job_of(parts[0])
    return {
        "mode": "exactly_once",
        "interval": found.checkpoint_interval_ms,
        "timeout": 600_000,
        "min_pause": 0,
        "max_concurrent": 1,
        "externalization": {"enabled": True, "delete_on_cancellation": True},
        "state_backend": "RocksDBStateBackend",
        "checkpoint_storage": "FileSystemCheckpointStorage",
        "unaligned_checkpoints": False,
        "tolerable_failed_checkpoints": 0,
        "aligned_checkpoint_timeout": 0,
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": 600_000,
        "changelog_storage": "memory",
    }


def _number(text: str) -> int:
    if not text.isdigit() or not 60 <= int(text) <= 75:
        raise NotFoundError(f"Could not find checkpointing statistics for checkpoint {text}")
    return int(text)


def checkpoint_details(parts: Sequence[str], query: Query) -> Any:
    return _checkpoint(job_of(parts[0]), _number(parts[1]), detailed=True)


def checkpoint_subtasks(parts: Sequence[str], query: Query) -> Any:
    found = job_of(parts[0])
    number = _number(parts[1])
    of = vertex_of(found, parts[2])
    checkpoint = _checkpoint(found, number)
    rows = [_subtask_checkpoint(found, i, subtask) for i, subtask in enumerate(of.subtasks)]
    if checkpoint["className"] != "completed":
        rows[-1] = {"className": "pending", "index": len(rows) - 1, "status": "pending_or_failed"}
    done = [row for row in rows if row["className"] == "completed"] or [
        _subtask_checkpoint(found, 0, of.subtasks[0])
    ]
    return {
        "id": number,
        "status": checkpoint["status"],
        "summary": {
            "checkpoint_duration": {
                phase: stats(row["checkpoint"][phase] for row in done)
                for phase in ("sync", "async")
            },
            "alignment": {
                figure: stats(row["alignment"][figure] for row in done)
                for figure in ("buffered", "processed", "persisted", "duration")
            },
            "start_delay": stats(row["start_delay"] for row in done),
        },
        "subtasks": rows,
    }


def _subtask_checkpoint(found: GoldenJob, index: int, subtask: Subtask) -> dict[str, Any]:
    written = max(2, found.checkpoint_ms // 10)
    return {
        "className": "completed",
        "index": index,
        "status": "completed",
        "ack_timestamp": NOW - 4_000,
        "end_to_end_duration": subtask.delay_ms + subtask.align_ms + 3 + written,
        "checkpointed_size": 18_233 + index,
        "state_size": 248_233,
        "checkpoint": {"sync": 3, "async": written},
        "alignment": {"buffered": 0, "processed": 0, "persisted": 0, "duration": subtask.align_ms},
        "start_delay": subtask.delay_ms,
        "unaligned_checkpoint": False,
        "aborted": False,
    }
