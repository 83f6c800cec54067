"""Timers as files: Parquet with one row per timer, ordered by key group.

Columns: `service`, `domain` ("event" or "processing"), `ts` (epoch ms), `key_group`, `key`, `namespace`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.checkpoint.handles import StateChunk, StateTable
from headrace.checkpoint.storage.snapshot_files import SnapshotReader, SnapshotWriter
from headrace.functions.process import TimeDomain
from headrace.state import columns as state_columns
from headrace.state.columns import (
    EVENT_DOMAIN,
    KEY,
    KEY_GROUP,
    NAMESPACE,
    PROCESSING_DOMAIN,
    TIMER_DOMAIN,
    TIMER_SERVICE,
    TIMER_TIME,
)
from headrace.state.keyed_chunks import ChunkFiles, read_tables
from headrace.state.queryable.live_rows import LivePiece
from headrace.state.restored import KeySpace
from headrace.state.timer_queue import FrozenTimerQueue, Timer

_DOMAINS: Final = {
    TimeDomain.EVENT_TIME: EVENT_DOMAIN,
    TimeDomain.PROCESSING_TIME: PROCESSING_DOMAIN,
}
_PIECE_ROWS: Final = 65_536


@dataclass(frozen=True)
class _Rows:
    domain: str
    times: list[int]
    keys: list[Any]
    namespaces: list[Any]


def write_timers(
    name: str,
    queues: Mapping[TimeDomain, FrozenTimerQueue],
    key_space: KeySpace,
    writer: SnapshotWriter,
) -> list[StateChunk]:
    """Write the timers of a service; no chunk where there is none."""
    files = ChunkFiles(StateTable.TIMERS, name, {}, writer)
    unordered: list[pa.Table] = []
    for domain, queue in queues.items():
        timers = iter(queue)
        while piece := list(islice(timers, _PIECE_ROWS)):
            times, keys, namespaces = zip(*piece, strict=True)
            rows = _Rows(_DOMAINS[domain], list(times), list(keys), list(namespaces))
            table = _table(name, rows, key_space)
            if queue.is_by_key_group:
                files.add(table)  # there may be more than memory holds
            else:
                unordered.append(table)
        files.flush()
    _write_ordered(unordered, files)
    return files.finish()


def live_timers(
    name: str,
    queues: Mapping[TimeDomain, FrozenTimerQueue],
    key_space: KeySpace,
    keys: Sequence[Any] | None,
    count: Callable[[], int],
) -> Iterator[LivePiece]:
    """Yield the timers of a service in pieces, for certain keys or for all (None)."""
    wanted = None if keys is None else set(keys)
    for domain, queue in queues.items():
        timers = iter(queue)
        while piece := list(islice(timers, count())):
            shown = piece if wanted is None else [one for one in piece if one[1] in wanted]
            table = None
            if shown:
                times, own, namespaces = zip(*shown, strict=True)
                rows = _Rows(_DOMAINS[domain], list(times), list(own), list(namespaces))
                table = _table(name, rows, key_space)
            yield LivePiece(table, len(piece))


def no_timers(name: str, key_space: KeySpace) -> pa.Table:
    """Return the columns of a service without timers."""
    return _table(name, _Rows("", [], [], []), key_space)


def _write_ordered(tables: Sequence[pa.Table], files: ChunkFiles) -> None:
    # One time window and one pickled namespace make two schemas, hence two files.
    by_schema: dict[str, list[pa.Table]] = {}
    for table in tables:
        by_schema.setdefault(str(table.schema), []).append(table)
    for alike in by_schema.values():
        table = pa.concat_tables(alike)
        order = np.argsort(table.column(KEY_GROUP).to_numpy(), kind="stable")
        ordered = table.take(pa.array(order)).combine_chunks()
        for offset in range(0, ordered.num_rows, _PIECE_ROWS):
            files.add(ordered.slice(offset, _PIECE_ROWS))
        files.flush()


def _table(name: str, rows: _Rows, key_space: KeySpace) -> pa.Table:
    count = len(rows.times)
    groups = state_columns.key_groups(rows.keys, key_space.key_type, key_space.max_parallelism)
    columns: dict[str, pa.Array] = {
        TIMER_SERVICE: pa.array([name] * count, pa.string()),
        TIMER_DOMAIN: pa.array([rows.domain] * count, pa.string()),
        TIMER_TIME: pa.array(rows.times, type=pa.int64()),
        KEY_GROUP: pa.array(groups),
        KEY: state_columns.encode(rows.keys, key_space.key_type),
    }
    if any(namespace is not None for namespace in rows.namespaces):
        columns[NAMESPACE] = state_columns.encode_namespaces(rows.namespaces)
    return pa.table(columns)


def read_timers(
    chunks: Sequence[StateChunk], reader: SnapshotReader, key_space: KeySpace
) -> Iterator[tuple[TimeDomain, Timer]]:
    """Yield the timers of chunks that belong to the own key groups."""
    domains = {text: domain for domain, text in _DOMAINS.items()}
    for table in read_tables(chunks, reader, key_space.key_groups):
        keys = state_columns.decode(table.column(KEY).combine_chunks(), key_space.key_type)
        namespaces: list[Any] = [None] * len(keys)
        if NAMESPACE in table.column_names:
            namespaces = state_columns.decode_namespaces(table.column(NAMESPACE).combine_chunks())
        times: list[int] = table.column(TIMER_TIME).to_pylist()
        texts: list[str] = table.column(TIMER_DOMAIN).to_pylist()
        for text, time_ms, key, namespace in zip(texts, times, keys, namespaces, strict=True):
            yield domains[text], (time_ms, key, namespace)
