"""Answers of the state browser's routes: one operator with a hot key, of now and of two snapshots."""

from collections.abc import Sequence
from typing import Any, Final

from tests.dashboard.golden_answers import Query, job_of
from tests.dashboard.golden_jobs import NOW

OPERATOR: Final = "c" * 32
TRIGGER: Final = "d" * 32
EDITED: Final = "file:/data/savepoints/savepoint-aaaaaa-fedcba987654"
_ENDED: Final = ("FINISHED", "CANCELED", "FAILED")
_CUSTOMERS: Final = (
    ("anna", {"orders": 12, "total": "1803.40"}),
    ("bela", {"orders": 3, "total": "77.00"}),
    ("everyone", {"orders": 918_233, "total": "90071992547409931.10"}),
)


def job_state(parts: Sequence[str], query: Query) -> Any:
    found = job_of(parts[0])
    snapshot = int(query["snapshot"]) if "snapshot" in query else None
    is_ended = found.state in _ENDED and snapshot is None
    operators = [
        _operator(OPERATOR, "enrich", "KeyedProcess: enrich with customer", snapshot),
        _operator("5" * 32, "orders", "Source: orders", snapshot),
    ]
    return {
        "jid": found.id,
        "snapshot": snapshot,
        "backend": "EmbeddedRocksDBStateBackend",
        "savepoint-directory": "/data/savepoints",
        "operators": [] if is_ended else operators,
        "problem": f"job {found.id} has ended" if is_ended else None,
        "snapshots": [
            _snapshot(74, "savepoint", "file:/data/savepoints/savepoint-aaaaaa-0123456789ab", None)
            | {"savepoint-format": "CANONICAL"},
            _snapshot(73, "checkpoint", f"file:/data/checkpoints/{found.id}/chk-73", None),
            _snapshot(72, "checkpoint", "", "Newer checkpoints have replaced it."),
            _snapshot(9, "restored", "file:/data/savepoints/savepoint-aaaaaa-00000000000a", None)
            | {"savepoint-format": "NATIVE", "size": None},
        ],
    }


def operator_state(parts: Sequence[str], query: Query) -> Any:
    is_stored = "snapshot" in query
    return {
        "id": parts[1],
        "title": "enrich",
        "snapshot": int(query["snapshot"]) if is_stored else None,
        "taken-at": NOW,
        "watermark": None if is_stored else NOW - 412_000,
        "states": [
            _figures("keyed", "customer", "value", [], is_stored),
            _figures("keyed", "seen", "map", ["map_key"], is_stored),
            _figures("timers", "user-timers", "", [], is_stored)
            | {
                "timers": [
                    {
                        "domain": "event",
                        "next": NOW + 400,
                        "due": {"due": 0, "1 s": 3, "10 s": 40, "1 min": 0, "10 min": 0, "1 h": 0, "1 d": 0,
                                "later": 957},
                    }
                ]
                if not is_stored
                else []
            },
        ],
    }  # fmt: skip


def state_rows(parts: Sequence[str], query: Query) -> Any:
    is_map = query["state"] == "seen"
    columns = [("key_group", "int32", True), ("key", "string", True)]
    columns += [("map_key", "binary", False)] if is_map else []
    columns.append(("value", "struct<orders: int64, total: string>", True))
    wanted = query.get("keys")
    rows = [
        [index, name, *(["0x8004"] if is_map else []), customer]
        for index, (name, customer) in enumerate(_CUSTOMERS)
        if wanted is None or f'"{name}"' in wanted
    ]
    return {
        "table": query["table"],
        "state": query["state"],
        "snapshot": int(query["snapshot"]) if "snapshot" in query else None,
        "columns": [
            {"name": name, "type": kind, "is-readable": is_readable}
            for name, kind, is_readable in columns
        ],
        "rows": [{"subtask": row[0], "values": row, "cut": []} for row in rows],
        "notes": [] if wanted else ["There are more than 3 rows: select keys, or one subtask."],
    }


def edit_state(parts: Sequence[str], query: Query) -> Any:
    return {"request-id": TRIGGER}


def edit_status(parts: Sequence[str], query: Query) -> Any:
    change = {
        "operator": "enrich", "state": "customer", "action": "keyed replaced", "rows-before": 3, "rows": 3,
        "added": 0, "changed": 1, "removed": 0,
    }  # fmt: skip
    return {
        "status": {"id": "COMPLETED"},
        "operation": {"location": EDITED, "changes": [change]},
    }


def _operator(operator_id: str, uid: str, name: str, snapshot: int | None) -> dict[str, Any]:
    return {
        "id": operator_id,
        "uid": uid,
        "name": name,
        "vertex": None if snapshot else name,
        "parallelism": 4,
        "max-parallelism": 128,
        "size": 91_226_112 if snapshot else None,
        "rows": 1_204_000 if snapshot else None,
    }


def _snapshot(number: int, kind: str, path: str, problem: str | None) -> dict[str, Any]:
    return {
        "id": number,
        "kind": kind,
        "savepoint-format": None,
        "timestamp": NOW - (75 - number) * 60_000,
        "size": 91_226_112,
        "path": path,
        "problem": problem,
    }


def _figures(
    table: str, name: str, kind: str, unreadable: list[str], is_stored: bool
) -> dict[str, Any]:
    sizes = [4_100_000, 3_900_000, 79_200_000, 4_026_112]
    groups = [(71, 2, 74_000_000), (3, 0, 610_000), (40, 1, 590_000)]
    keys = [("'everyone'", 918_233, 73_400_000), ("'anna'", 12, 1_210)]
    return {
        "table": table,
        "name": name,
        "kind": kind,
        "unreadable": unreadable,
        "is-waiting": False,
        "rows": 1_204_000,
        "size": sum(sizes),
        "expired-rows": None,
        "oldest-window": None,
        "subtasks": [
            {"subtask": index, "rows": size // 80, "size": size} for index, size in enumerate(sizes)
        ],
        "subtask-skew": 3.47,
        "key-group-count": 128,
        "key-group-skew": 103.9,
        "key-groups": [
            {"key-group": group, "subtask": subtask, "rows": size // 80, "size": size}
            for group, subtask, size in groups
        ],
        "keys": [{"key": key, "rows": rows, "size": size} for key, rows, size in keys],
        "are-keys-exact": True,
        "timers": [],
        "is-partial": is_stored,
    }
