"""PartitionRows: the rows of a subtask or of its keys, held in columns until all have arrived.

Rows beyond a buffer are written to unnamed files that are mapped into memory, so that the kernel may drop their pages
and read them again. `PartitionRows` is also the state of an operator: keyed rows by key group, other rows in
items that a restore at another parallelism distributes. `groups_by_key` cuts ordered rows into keys.
Source: Flink SortPartitionOperator, MapPartitionOperator, ExternalSorter.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.checkpoint.handles import StateChunk, StateTable
from headrace.checkpoint.storage.snapshot_files import SnapshotWriter
from headrace.core.barriers import CheckpointOptions
from headrace.core.record_batch import (
    KEY_COLUMN,
    KEY_HASH_COLUMN,
    BatchType,
    RecordBatch,
    stream_bytes,
)
from headrace.core.types.arrow_mapping import ROW_KIND_COLUMN, array_to_values
from headrace.core.types.arrow_types import arrow_type_of, data_schema
from headrace.core.types.type_info import RowTypeInfo
from headrace.operators.columns.integer_columns import Codes, Indexes, stable_order
from headrace.state.backend import FrozenState, Snapshotable
from headrace.state.columnar_rows import KEY_HASH_FIELD, ColumnarRows, FrozenTables
from headrace.state.operator_state_backend import FrozenItems, read_items
from headrace.state.operator_state_handler import OperatorStateHandler

PIECE_ROWS: Final = 8_192
"""Limit of rows that become Python values, or are put in order, at once."""
COLUMN_PIECE_ROWS: Final = 65_536
"""Limit of rows that stay in columns and are handled at once."""
STATE_NAME: Final = "partition-rows"
"""Name of the state, in snapshots."""
_ITEM_ROWS: Final = 65_536
Places = npt.NDArray[np.intp]


Part = tuple[RecordBatch, int, int]
"""A batch without keys, and the first row and the number of rows that belong to the part."""


class RowGroup:
    """All rows of one partition or key, in order."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts: Final = parts

    def values(self) -> Iterator[Any]:
        """Yield the records as Python values; those of a large group are never all in memory."""
        if len(self._parts) == 1:
            ((batch, start, count),) = self._parts
            if batch.num_rows <= PIECE_ROWS:
                # For all groups in the batch at once, as they are small.
                yield from batch.rows()[start : start + count]
                return
        for batch, start, count in self._parts:
            for begin in range(start, start + count, PIECE_ROWS):
                length = min(PIECE_ROWS, start + count - begin)
                yield from batch.without_rows().slice(begin, length).rows()

    def blocks(self) -> list[pa.RecordBatch]:
        """Return the data columns, and the kinds of rows if there are any."""
        return [batch.columns().slice(start, count) for batch, start, count in self._parts]

    def table(self, schema: pa.Schema) -> pa.Table:
        """Return the columns of `schema`, the schema of the records' type."""
        blocks = [
            block if len(block.schema) == len(schema) else block.select(schema.names)
            for block in self.blocks()
        ]
        return pa.Table.from_batches(blocks, schema=schema)


class PartitionRows:
    """Holds rows of `batch_type`, in order of arrival; a state among `states`, with restored rows."""

    def __init__(self, batch_type: BatchType, states: OperatorStateHandler) -> None:
        self._batch_type: Final = batch_type
        self._directory: Final = states.scratch or None
        self._buffer_bytes: Final = states.row_buffer_bytes
        value_type, key_type = batch_type.value_type, batch_type.key_type
        schema = data_schema(value_type)
        self._has_kinds: Final = isinstance(value_type, RowTypeInfo)
        if self._has_kinds:
            schema = schema.append(pa.field(ROW_KIND_COLUMN, pa.int8()))
        self._data_count: Final = len(schema)
        if key_type is not None:
            schema = schema.append(pa.field(KEY_COLUMN, arrow_type_of(key_type)))
            schema = schema.append(KEY_HASH_FIELD)
        self._schema: Final = schema
        self._stored: list[pa.RecordBatch] = []
        self._held: list[pa.RecordBatch] = []
        self._restore(states)

    def _restore(self, states: OperatorStateHandler) -> None:
        if self._batch_type.key_type is not None:
            rows = ColumnarRows(STATE_NAME, self._schema, self._frozen)
            tables = rows.restore(states)
            # Pages of files are not counted, as the kernel may drop them.
            self._memory = rows.memory
            for table in tables:
                for block in table.to_batches():
                    self._hold(block)
            return
        self._memory = states.account_of(STATE_NAME)
        for item in read_items(states.register(STATE_NAME, _ItemRows(self)), states.reader):
            for block in pa.ipc.open_stream(item):
                self._hold(block)

    def add(self, batch: RecordBatch) -> None:
        """Add rows, with their keys if they have some."""
        columns = batch.columns()
        arrays = columns.columns
        if self._has_kinds and len(arrays) < self._data_count:
            arrays.append(pa.array(np.zeros(batch.num_rows, np.int8)))
        if batch.key_hashes is not None:
            arrays += [batch.keys_array(), pa.array(batch.key_hashes)]
        self._hold(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def take(self) -> list[pa.RecordBatch]:
        """Return all rows, in order of arrival, and hold none."""
        blocks = [*self._stored, *self._held]
        self._stored, self._held = [], []
        self._memory.resize(0)
        return blocks

    def group(self, blocks: Sequence[pa.RecordBatch]) -> RowGroup:
        """Return rows that all belong to one partition as a group."""
        return RowGroup([(self._records(block), 0, block.num_rows) for block in blocks])

    def groups_by_key(
        self, blocks: Iterable[pa.RecordBatch], piece_rows: int = PIECE_ROWS
    ) -> Iterator[RowGroup]:
        """Yield the rows of each key from rows in order of their hashes. Equal hashes may belong to several keys.

        `piece_rows`: limit of rows that are handled together; at most PIECE_ROWS if they become Python values.
        """
        stretches: list[_Stretch] = []
        open_hash: int | None = None
        is_mixed = False
        for block in _pieces(blocks, piece_rows):
            keys, records = block.column(KEY_COLUMN), self._records(block)
            hashes = block.column(KEY_HASH_COLUMN).to_numpy()
            begins = np.flatnonzero(hashes[1:] != hashes[:-1]) + 1
            mixed = _mixed_stretches(keys, begins)
            bounds = [0, *begins.tolist(), block.num_rows]
            for number, start in enumerate(bounds[:-1]):
                if number or int(hashes[0]) != open_hash:
                    yield from self._groups_of(stretches, is_mixed)
                    stretches, is_mixed = [], False
                elif stretches:
                    is_mixed = is_mixed or not stretches[-1].last_key.equals(keys[0])
                is_mixed = is_mixed or mixed is None or number in mixed
                stretches.append(_Stretch(records, keys, start, bounds[number + 1] - start))
            open_hash = int(hashes[-1])
        yield from self._groups_of(stretches, is_mixed)

    def _groups_of(self, stretches: "list[_Stretch]", is_mixed: bool) -> Iterator[RowGroup]:
        """Yield the rows of each key of one hash. If they are not mixed all are of one key."""
        if not is_mixed:
            if stretches:
                yield RowGroup([(one.records, one.start, one.count) for one in stretches])
            return
        key_type = self._batch_type.key_type
        assert key_type is not None
        # Equal keys may have different columns, as pickles do.
        numbers: dict[Any, int] = {}
        codes: list[Codes] = []
        for one in stretches:
            keys = array_to_values(one.keys.slice(one.start, one.count), key_type)
            codes.append(np.array([numbers.setdefault(key, len(numbers)) for key in keys]))
        if len(numbers) == 1:
            yield from self._groups_of(stretches, is_mixed=False)
            return
        for number in range(len(numbers)):
            parts: list[Part] = []
            for one, of_rows in zip(stretches, codes, strict=True):
                places = np.flatnonzero(of_rows == number)
                if len(places):
                    parts.append((one.records.take(places + one.start), 0, len(places)))
            yield RowGroup(parts)

    def _records(self, block: pa.RecordBatch) -> RecordBatch:
        count = self._data_count
        if self._has_kinds and not np.any(block.column(count - 1).to_numpy()):
            count -= 1
        if count < len(block.schema):
            block = block.select(range(count))
        return RecordBatch.of_columns(BatchType(self._batch_type.value_type), block)

    def _hold(self, block: pa.RecordBatch) -> None:
        self._held.append(block)
        self._memory.add_rows(block)
        if self._memory.size_bytes >= self._buffer_bytes:
            # The account estimates small batches by the rows measured last, which may be of another size.
            self._memory.resize(sum(one.nbytes for one in self._held))
        if self._memory.size_bytes >= self._buffer_bytes:
            self._stored.append(mapped(pa.concat_batches(self._held), self._directory))
            self._held = []
            self._memory.resize(0)

    def _frozen(self) -> FrozenTables:
        blocks = [*self._stored, *self._held]
        return lambda: [pa.Table.from_batches(blocks, schema=self._schema)]

    def items(self) -> "_FrozenItemRows":
        """Return the present rows, to be written item by item."""
        return _FrozenItemRows([*self._stored, *self._held])


class _ItemRows(Snapshotable):
    """State of rows without keys."""

    def __init__(self, rows: PartitionRows) -> None:
        self._rows: Final = rows

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> "_FrozenItemRows":
        return self._rows.items()


class _FrozenItemRows(FrozenState):
    """Frozen rows without keys, each item an Arrow stream."""

    def __init__(self, blocks: list[pa.RecordBatch]) -> None:
        self._blocks = blocks

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        items = tuple(
            stream_bytes(block.schema, [block.slice(start, _ITEM_ROWS)])
            for block in self._blocks
            for start in range(0, block.num_rows, _ITEM_ROWS)
        )
        return FrozenItems(StateTable.ITEMS, STATE_NAME, items).write(writer)

    def discard(self) -> None:
        self._blocks = []


def mapped(block: pa.RecordBatch, directory: str | None) -> pa.RecordBatch:
    """Return the same rows in a mapped file, whose space is freed once nothing refers to them."""
    file, path = tempfile.mkstemp(dir=directory)
    try:
        with os.fdopen(file, "wb") as sink, pa.ipc.new_stream(sink, block.schema) as stream:
            stream.write_batch(block)
        return pa.ipc.open_stream(pa.memory_map(path)).read_next_batch()
    finally:
        os.unlink(path)


def in_hash_order(blocks: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in order of their keys' hashes, then of arrival."""
    hashes = [block.column(KEY_HASH_COLUMN).to_numpy() for block in blocks]
    if hashes:
        yield from ordered_pieces(blocks, stable_order(np.concatenate(hashes)))


def ordered_pieces(
    blocks: Sequence[pa.RecordBatch], order: Indexes | Places
) -> Iterator[pa.RecordBatch]:
    """Yield the rows at the positions `order`, shape (num_rows,), in that order, in pieces."""
    # One `take` of many blocks would concatenate all of them for each piece.
    begins = np.cumsum([0, *(block.num_rows for block in blocks)])
    for start in range(0, len(order), PIECE_ROWS):
        places = order[start : start + PIECE_ROWS]
        numbers = np.searchsorted(begins, places, "right") - 1
        taken: list[pa.RecordBatch] = []
        positions: list[Places] = []
        for number in np.unique(numbers).tolist():
            of_block = np.flatnonzero(numbers == number)
            positions.append(of_block)
            taken.append(blocks[number].take(pa.array(places[of_block] - begins[number])))
        if len(taken) == 1:
            yield taken[0]
            continue
        back = np.empty(len(places), np.int64)
        back[np.concatenate(positions)] = np.arange(len(places))
        yield pa.concat_batches(taken).take(pa.array(back))


def few_blocks(blocks: Sequence[pa.RecordBatch], buffer_bytes: int) -> list[pa.RecordBatch]:
    """Return the same rows in few blocks, so that each piece of an order reads from few.

    Blocks of at least half of `buffer_bytes` stay as they are, in files.
    """
    found: list[pa.RecordBatch] = []
    small: list[pa.RecordBatch] = []
    for block in blocks:
        if block.nbytes >= buffer_bytes // 2:
            if small:
                found.append(pa.concat_batches(small))
                small = []
            found.append(block)
        else:
            small.append(block)
    if small:
        found.append(pa.concat_batches(small))
    return found


def _pieces(blocks: Iterable[pa.RecordBatch], piece_rows: int) -> Iterator[pa.RecordBatch]:
    for block in blocks:
        for start in range(0, block.num_rows, piece_rows):
            yield block.slice(start, piece_rows)


@dataclass(frozen=True)
class _Stretch:
    """The rows [start, start + count) of a batch, all of one hash. `keys`: of the whole batch."""

    records: RecordBatch
    keys: pa.Array
    start: int
    count: int

    @property
    def last_key(self) -> pa.Scalar:
        return self.keys[self.start + self.count - 1]


def _mixed_stretches(keys: pa.Array, begins: Indexes | Places) -> set[int] | None:
    """Return which stretches of one hash may have several keys; None if Arrow cannot compare keys of the type.

    `begins`: of the second and later stretches.
    """
    if pa.types.is_nested(keys.type):
        return None
    neighbours = [keys.slice(1), keys.slice(0, len(keys) - 1)]
    differs = pc.call_function("not_equal", neighbours).fill_null(True)
    places = np.flatnonzero(differs.to_numpy(zero_copy_only=False)) + 1
    inside = np.setdiff1d(places, begins, assume_unique=True)
    return set(np.searchsorted(begins, inside, "right").tolist())
