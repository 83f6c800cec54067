"""Data in flight as tables that anybody can read: Arrow streams of the captured batches, in their order.

Each table begins with its schema, so that nothing depends on what was sent before. The markers between the rows of each
batch stand in the schema's metadata under `headrace.markers`, as JSON: for each batch a list of [row, kind, value],
where kind "w" is a watermark (epoch ms), "s" idleness (1: idle) and "l" a latency marker (epoch ms, then its source's
operator id in hex and subtask index).
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.elements import (
    LatencyMarker,
    PlacedMarker,
    StreamMarker,
    Watermark,
    WatermarkStatus,
)
from headrace.core.ids import OperatorId
from headrace.core.record_batch import KEY_HASH_COLUMN

_MARKERS: Final = b"headrace.markers"
_WATERMARK, _STATUS, _LATENCY = "w", "s", "l"
_NO_COLUMNS: Final = pa.schema([])


@dataclass(frozen=True)
class CapturedFrame:
    """One captured batch; `rows` is None where it has only markers."""

    rows: pa.RecordBatch | None
    markers: tuple[PlacedMarker, ...]


@dataclass(frozen=True)
class FrameTable:
    """Frames of one schema. `key_hashes`, shape (row_count,): of rows that have keys, else None."""

    content: memoryview
    row_count: int
    key_hashes: npt.NDArray[np.int32] | None


def tables_of(frames: Iterable[CapturedFrame]) -> Iterator[FrameTable]:
    """Write frames, a table for each run of one schema; one without rows stands with those before it."""
    last = _NO_COLUMNS

    def schema_of(frame: CapturedFrame) -> pa.Schema:
        nonlocal last
        if frame.rows is not None and not frame.rows.schema.equals(last):
            last = frame.rows.schema
        return last

    # The same object for a whole run: `groupby` compares with what came before.
    for schema, run in groupby(frames, key=schema_of):
        yield _table(schema, list(run))


def _table(schema: pa.Schema, frames: list[CapturedFrame]) -> FrameTable:
    markers = [[_plain(placed) for placed in frame.markers] for frame in frames]
    metadata = {**(schema.metadata or {}), _MARKERS: json.dumps(markers).encode()}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema.with_metadata(metadata)) as stream:
        for frame in frames:
            rows = frame.rows
            if rows is None:
                empty = [pa.array([], column.type) for column in schema]
                rows = pa.RecordBatch.from_arrays(empty, schema=schema)
            stream.write_batch(rows)
    batches = [frame.rows for frame in frames if frame.rows is not None]
    key_hashes = None
    if batches and KEY_HASH_COLUMN in schema.names:
        key_hashes = np.concatenate([key_hashes_of(rows) for rows in batches])
    row_count = sum(rows.num_rows for rows in batches)
    return FrameTable(memoryview(sink.getvalue()), row_count, key_hashes)


def key_hashes_of(rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
    """The hashes of the keys that rows on a keyed edge carry, shape (num_rows,)."""
    return rows.column(KEY_HASH_COLUMN).to_numpy(zero_copy_only=True)


def frames_of(content: memoryview) -> list[CapturedFrame]:
    """Inverse of one table of `tables_of`."""
    with pa.ipc.open_stream(pa.py_buffer(content)) as stream:
        metadata = dict(stream.schema.metadata)
        markers = json.loads(metadata.pop(_MARKERS))
        batches = [batch.replace_schema_metadata(metadata or None) for batch in stream]
    return [
        CapturedFrame(batch if batch.num_rows else None, tuple(_marker(plain) for plain in placed))
        for batch, placed in zip(batches, markers, strict=True)
    ]


def _plain(placed: PlacedMarker) -> list[int | str]:
    match placed.marker:
        case Watermark(timestamp_ms):
            return [placed.row_offset, _WATERMARK, timestamp_ms]
        case WatermarkStatus(is_idle):
            return [placed.row_offset, _STATUS, int(is_idle)]
        case LatencyMarker(marked_time_ms, source_id, subtask_index):
            return [placed.row_offset, _LATENCY, marked_time_ms, source_id.hex(), subtask_index]


def _marker(plain: list[Any]) -> PlacedMarker:
    row_offset, kind, value, *origin = plain
    marker: StreamMarker
    if kind == _LATENCY:
        source_id, subtask_index = origin
        marker = LatencyMarker(value, OperatorId.from_hex(source_id), subtask_index)
    else:
        marker = Watermark(value) if kind == _WATERMARK else WatermarkStatus(is_idle=bool(value))
    return PlacedMarker(row_offset, marker)
