"""Golden answers about checkpoints and savepoints of the jobs of `golden_jobs`."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tests.dashboard.golden_answers import NotFoundError, Query, job_of, vertex_of
from tests.dashboard.golden_jobs import NOW, GoldenJob, Subtask


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
    checkpoint = _checkpoint(found, number, detailed=True)
    rows = [_subtask_checkpoint(found, i, subtask) for i, subtask in enumerate(of.subtasks)]
    if checkpoint["className"] != "completed":
        rows[-1] = {"className": "pending", "index": len(rows) - 1, "status": "pending_or_failed"}
    done = [row for row in rows if row["className"] == "completed"] or [
        _subtask_checkpoint(found, 0, of.subtasks[0])
    ]
    return checkpoint["tasks"][of.id] | {
        "summary": {
            **{
                figure: stats(row[figure] for row in done)
                for figure in ("checkpointed_size", "state_size", "end_to_end_duration")
            },
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
