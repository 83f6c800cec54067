"""StoredStateView: the state in one snapshot of a job. Its methods read files and block: call them on a thread."""

from typing import Final

import pyarrow as pa

from headrace.checkpoint.handles import StateTable, row_count_of
from headrace.checkpoint.metadata import CompletedCheckpoint, OperatorSnapshot
from headrace.checkpoint.state_queries import skew_of
from headrace.checkpoint.storage.checkpoint_storage import load_snapshot
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.rest.models import state as models
from headrace.rest.state.job_snapshots import JobSnapshot
from headrace.rest.state.live_state_view import RowsRequest, parts_of
from headrace.rest.state.shown_rows import ShownRows
from headrace.state_processor.selection import PinnedReader, held, missing_explained, operator_in
from headrace.state_processor.stored_counts import StoredCounts
from headrace.state_processor.stored_state import (
    StoredChunk,
    chunks_of,
    stored_state,
)
from headrace.state_processor.table_query import STATE_TABLES, OpenTable, TableQuery, keys_of_json

_TABLE_NAMES: Final = {table: name for name, table in STATE_TABLES.items()}
_TABLES: Final = (*_TABLE_NAMES, StateTable.NATIVE)
_TIME_MAX_MS: Final = 20_000


class StoredStateView:
    """The state in one snapshot. SnapshotSubsumedError if it was deleted, MetadataError if it cannot be read."""

    def __init__(self, snapshot: JobSnapshot, settings: Settings, clock: Clock) -> None:
        self._snapshot: Final = snapshot
        self._settings: Final = settings
        self._clock: Final = clock

    def operators(self) -> list[models.StateOperator]:
        """Return the operators of the snapshot."""
        return [
            models.StateOperator(
                id=one.operator_id.hex(),
                uid=one.uid or "",
                name=one.name,
                vertex=None,
                parallelism=one.parallelism,
                max_parallelism=one.max_parallelism,
                size=one.size_bytes,
                rows=row_count_of(
                    chunk.chunk for table in _TABLES for chunk in chunks_of(one, table)
                ),
            )
            for one in self._loaded().metadata.operators
        ]

    def figures(self, named: str) -> models.OperatorState:
        """Return the sizes of an operator's states, from its metadata and its rows. UnknownStateError."""
        metadata = self._loaded().metadata
        operator = operator_in(metadata, named)
        states = [
            (table, name)
            for table in _TABLES
            for name in sorted({one.chunk.name for one in chunks_of(operator, table)})
        ]
        reader = PinnedReader(self._snapshot.uri)
        counts = StoredCounts(reader, self._clock, operator, metadata.timestamp_ms)
        with held(self._snapshot.uri, clock=self._clock):
            return models.OperatorState(
                id=operator.operator_id.hex(),
                title=operator.title,
                snapshot=self._snapshot.checkpoint_id,
                taken_at=metadata.timestamp_ms,
                watermark=None,
                states=[_figures(operator, table, name, counts) for table, name in states],
            )

    def rows(self, named: str, request: RowsRequest) -> models.StateRows:
        """Return rows of one state. UnknownStateError, NativeStateError, JsonValueError."""
        shown = ShownRows(request.limit)
        with held(self._snapshot.uri, clock=self._clock), missing_explained(self._snapshot.uri):
            snapshot = load_snapshot(self._snapshot.uri, self._settings)
            opened, opaque = _opened(snapshot, named, request)
            note = self._read(opened, shown, opaque, request.subtask)
        return models.StateRows(
            table=request.table,
            state=request.state,
            snapshot=self._snapshot.checkpoint_id,
            columns=shown.columns(),
            rows=shown.rows(),
            notes=[one for one in (shown.note, note) if one],
        )

    def _read(
        self, opened: OpenTable, shown: ShownRows, opaque: frozenset[str], subtask: int | None
    ) -> str:
        """Add rows, file by file, until there are enough; return a note if time ran out."""
        end_ms = self._clock.monotonic_ms() + _TIME_MAX_MS
        reader = PinnedReader(self._snapshot.uri)
        # Columns are also shown if there are no rows.
        shown.add(opened.schema.empty_table(), 0, opaque)
        for part in opened.parts:
            assert part.chunk is not None
            if subtask is not None and part.chunk.subtask_index != subtask:
                continue
            if self._clock.monotonic_ms() >= end_ms:
                return "Time ran out before all files were read: select keys, or one subtask."
            for batch in opened.read(part, reader):
                shown.add(pa.Table.from_batches([batch]), part.chunk.subtask_index, opaque)
                if shown.is_full:
                    return ""
        return ""

    def _loaded(self) -> CompletedCheckpoint:
        with missing_explained(self._snapshot.uri):
            return load_snapshot(self._snapshot.uri, self._settings)


def _opened(
    snapshot: CompletedCheckpoint, named: str, request: RowsRequest
) -> tuple[OpenTable, frozenset[str]]:
    state = stored_state(snapshot.metadata, STATE_TABLES[request.table], named, request.state)
    keys = None if request.keys is None else keys_of_json(state, request.keys)
    query = TableQuery(
        request.table, named, request.state, keys=keys, includes_expired=request.includes_expired
    )
    return query.open(snapshot), state.opaque


def _figures(
    operator: OperatorSnapshot, table: StateTable, name: str, counts: StoredCounts
) -> models.StateFiguresInfo:
    """Return rows and bytes of a state from the metadata, and its other figures from its counted rows."""
    chunks = [one for one in chunks_of(operator, table) if one.chunk.name == name]
    subtasks = [
        _subtask(index, [one for one in chunks if one.subtask_index == index])
        for index in sorted({one.subtask_index for one in chunks})
    ]
    sizes = [0] * max(operator.parallelism, len(subtasks))
    for place, one in enumerate(subtasks):
        sizes[place] = one.size
    counted = counts.of(chunks)
    return models.StateFiguresInfo(
        table=_TABLE_NAMES.get(table, table.value),
        name=name,
        kind=chunks[0].kind,
        unreadable=list(chunks[0].opaque),
        is_waiting=False,
        rows=row_count_of(one.chunk for one in chunks),
        size=sum(one.size for one in subtasks),
        expired_rows=sum(one.expired_count for one in chunks) or None,
        oldest_window=counted.totals.oldest_window_ms,
        subtasks=subtasks,
        subtask_skew=skew_of(sizes),
        is_partial=counted.is_partial,
        **parts_of(counted.totals),
    )


def _subtask(index: int, chunks: list[StoredChunk]) -> models.StateSubtask:
    return models.StateSubtask(
        subtask=index,
        rows=row_count_of(one.chunk for one in chunks),
        size=sum(one.chunk.file.size_bytes for one in chunks),
    )
