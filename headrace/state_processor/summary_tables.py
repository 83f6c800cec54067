"""Tables from metadata only: the snapshot itself, its operators, their event time, output not yet committed."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

from headrace.checkpoint.handles import OUTPUT_WATERMARK, WATERMARK, StateTable
from headrace.checkpoint.metadata import (
    CheckpointMetadata,
    CompletedCheckpoint,
    OperatorSnapshot,
    SnapshotEdit,
)
from headrace.state.keyed_chunks import KIND
from headrace.state_processor.stored_state import chunks_of

_STATE: Final = pa.struct(
    [
        pa.field("table", pa.string()),
        pa.field("name", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("bytes", pa.int64()),
    ]
)
_CHANGE: Final = pa.struct(
    [
        *(pa.field(name, pa.string()) for name in ("operator", "state", "action")),
        *(
            pa.field(name, pa.int64())
            for name in ("rows_before", "rows", "added", "changed", "removed", "removed_expired")
        ),
    ]
)
_SCHEMAS: Final = {
    "snapshot": pa.schema(
        [
            pa.field("uri", pa.string()),
            pa.field("id", pa.int64()),
            pa.field("kind", pa.string()),
            pa.field("timestamp_ms", pa.int64()),
            pa.field("job_id", pa.string()),
            pa.field("job_name", pa.string()),
            pa.field("lineage", pa.string()),
            pa.field("bytes", pa.int64()),
            pa.field("parent_uri", pa.string()),
            pa.field("parent_id", pa.int64()),
            pa.field("author", pa.string()),
            pa.field("reason", pa.string()),
            pa.field("changes", pa.list_(_CHANGE)),
        ]
    ),
    "operators": pa.schema(
        [
            pa.field("id", pa.string()),
            pa.field("uid", pa.string()),
            pa.field("name", pa.string()),
            pa.field("parallelism", pa.int32()),
            pa.field("max_parallelism", pa.int32()),
            pa.field("is_finished", pa.bool_()),
            pa.field("rows", pa.int64()),
            pa.field("bytes", pa.int64()),
            pa.field("states", pa.list_(_STATE)),
        ]
    ),
    "watermarks": pa.schema(
        [
            pa.field("operator_id", pa.string()),
            pa.field("operator", pa.string()),
            pa.field("subtask", pa.int32()),
            pa.field("watermark", pa.int64()),
            pa.field("output_watermark", pa.int64()),
        ]
    ),
    "pending_commits": pa.schema(
        [
            pa.field("operator_id", pa.string()),
            pa.field("checkpoint_id", pa.int64()),
            pa.field("subtask", pa.int32()),
            pa.field("key", pa.string()),
            pa.field("bytes", pa.int64()),
        ]
    ),
}
SUMMARY_TABLES: Final = frozenset(_SCHEMAS)

_Rows = Iterator[dict[str, Any]]


def summary_table(name: str, snapshot: CompletedCheckpoint) -> pa.Table:
    """Return one of the `SUMMARY_TABLES` of a snapshot."""
    rows = _READERS[name](snapshot)
    return pa.Table.from_pylist(list(rows), schema=_SCHEMAS[name])


def _snapshot(snapshot: CompletedCheckpoint) -> _Rows:
    metadata = snapshot.metadata
    yield {
        "uri": snapshot.uri,
        "id": metadata.checkpoint_id,
        "kind": metadata.kind.name,
        "timestamp_ms": metadata.timestamp_ms,
        "job_id": metadata.job_id.hex(),
        "job_name": metadata.job_name,
        "lineage": metadata.lineage,
        "bytes": metadata.size_bytes,
        **({} if metadata.edit is None else _edit(metadata.edit)),
    }


def _edit(edit: SnapshotEdit) -> dict[str, Any]:
    return {
        "parent_uri": edit.parent_uri,
        "parent_id": edit.parent_checkpoint_id,
        "author": edit.author,
        "reason": edit.reason,
        "changes": [
            {
                "operator": one.operator,
                "state": one.state,
                "action": one.action,
                "rows_before": one.row_count_before,
                "rows": one.row_count,
                "added": one.added_count,
                "changed": one.changed_count,
                "removed": one.removed_count,
                "removed_expired": one.removed_expired_count,
            }
            for one in edit.changes
        ],
    }


def _operators(snapshot: CompletedCheckpoint) -> _Rows:
    for one in snapshot.metadata.operators:
        states = list(_states(one))
        yield {
            "id": one.operator_id.hex(),
            "uid": one.uid,
            "name": one.name,
            "parallelism": one.parallelism,
            "max_parallelism": one.max_parallelism,
            "is_finished": one.is_finished,
            "rows": sum(state["rows"] for state in states),
            "bytes": one.size_bytes,
            "states": states,
        }


def _states(operator: OperatorSnapshot) -> _Rows:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for table in StateTable:
        for one in chunks_of(operator, table):
            chunk = one.chunk
            empty = {
                "table": table.value,
                "name": chunk.name,
                "kind": chunk.attributes.get(KIND),
                "rows": 0,
                "bytes": 0,
            }
            state = found.setdefault((table.value, chunk.name), empty)
            state["rows"] += chunk.row_count
            state["bytes"] += chunk.file.size_bytes
    yield from found.values()


def _watermarks(snapshot: CompletedCheckpoint) -> _Rows:
    for operator in snapshot.metadata.operators:
        for one in chunks_of(operator, StateTable.WATERMARKS):
            attributes = one.chunk.attributes
            yield {
                "operator_id": operator.operator_id.hex(),
                "operator": operator.name,
                "subtask": one.subtask_index,
                "watermark": _number(attributes.get(WATERMARK)),
                "output_watermark": _number(attributes.get(OUTPUT_WATERMARK)),
            }


def _pending_commits(snapshot: CompletedCheckpoint) -> _Rows:
    metadata: CheckpointMetadata = snapshot.metadata
    for pending in metadata.pending_commits:
        for one in pending.committables:
            yield {
                "operator_id": pending.operator_id.hex(),
                "checkpoint_id": pending.checkpoint_id,
                "key": one.key,
                "bytes": len(one.content),
            }
    for operator in metadata.operators:
        for index, state in sorted(operator.subtasks.items()):
            for one in state.committables:
                yield {
                    "operator_id": operator.operator_id.hex(),
                    "checkpoint_id": metadata.checkpoint_id,
                    "subtask": index,
                    "key": one.key,
                    "bytes": len(one.content),
                }


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


_READERS: Final[dict[str, Callable[[CompletedCheckpoint], _Rows]]] = {
    "snapshot": _snapshot,
    "operators": _operators,
    "watermarks": _watermarks,
    "pending_commits": _pending_commits,
}
