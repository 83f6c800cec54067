"""SortedRows: sorts the rows of a keyed input by key hash, then by time, then by arrival.

Rows that exceed a buffer are sorted in pieces, because a larger piece takes more time per row. The first pieces,
called runs, stay in memory; further ones are kept in unnamed files until they are merged, a block of each at a time.
Source: Flink ExternalSorter, MultiInputSortingDataInput.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.record_batch import (
    KEY_COLUMN,
    KEY_HASH_COLUMN,
    TIMESTAMP_COLUMN,
    KeyHashes,
    Timestamps,
)
from headrace.core.types.arrow_mapping import ROW_KIND_COLUMN
from headrace.network.batches.channel_selectors import in_order
from headrace.operators.columns.integer_columns import stable_order
from headrace.task.batch.edge_rows import (
    with_key_at,
    with_repeated_key,
    without_column,
    without_repeated_key,
)

_BLOCK_ROWS: Final = 16_384
_STRETCH_ROWS: Final = 256
"""Average number of consecutive rows with equal hashes from which slices are copied faster than single rows."""
RowOrder = npt.NDArray[np.intp]
_LAST_COLUMNS: Final = (ROW_KIND_COLUMN, TIMESTAMP_COLUMN, KEY_COLUMN, KEY_HASH_COLUMN)


@dataclass(frozen=True)
class OrderedRows:
    """Rows in sorted order.

    `inputs` and `hashes`: input number and key hash of each row, shape (num_rows,); `rows_of`: the rows of each input.
    """

    inputs: npt.NDArray[np.int8]
    hashes: KeyHashes
    rows_of: dict[int, pa.RecordBatch]

    @property
    def num_rows(self) -> int:
        return len(self.hashes)

    def part(self, start: int, end: int) -> "OrderedRows":
        """Return the rows [start, end), without inputs that have none of them."""
        inputs = self.inputs[start:end]
        rows_of = {
            number: rows.slice(int((self.inputs[:start] == number).sum()), count)
            for number, rows in self.rows_of.items()
            if (count := int((inputs == number).sum()))
        }
        return OrderedRows(inputs, self.hashes[start:end], rows_of)


class _Block:
    """Sorted rows of one input. Among rows with equal hashes and times those of a lower `rank` come first."""

    def __init__(self, rank: int, rows: pa.RecordBatch) -> None:
        self.rank: Final = rank
        self.rows = rows
        self.hashes: KeyHashes = rows.column(KEY_HASH_COLUMN).to_numpy()
        self.times = _times(rows)

    @property
    def last(self) -> tuple[int, int, int]:
        """Sort position of the last row."""
        time = MIN_TIMESTAMP if self.times is None else int(self.times[-1])
        return int(self.hashes[-1]), time, self.rank

    def take_until(self, bound: tuple[int, int, int]) -> pa.RecordBatch:
        """Cut off and return the rows that do not sort after `bound`."""
        hash_, time, rank = bound
        first = int(np.searchsorted(self.hashes, hash_, "left"))
        end = int(np.searchsorted(self.hashes, hash_, "right"))
        side = "right" if self.rank <= rank else "left"
        if self.times is not None:
            end = first + int(np.searchsorted(self.times[first:end], time, side))
        elif (MIN_TIMESTAMP, self.rank) > (time, rank):
            end = first
        taken, self.rows = self.rows.slice(0, end), self.rows.slice(end)
        self.hashes = self.hashes[end:]
        self.times = None if self.times is None else self.times[end:]
        return taken


class _Run:
    """Sorted rows of one input, in a sequence of blocks."""

    def __init__(self, rank: int, blocks: Iterator[pa.RecordBatch]) -> None:
        self._rank: Final = rank
        self._blocks: Final = blocks
        self._next = next(blocks, None)
        self.block: _Block | None = None
        self.fill()

    def fill(self) -> None:
        """Read the next block if the current one is used up."""
        if (self.block is None or not self.block.rows.num_rows) and self._next is not None:
            self.block = _Block(self._rank, self._next)
            self._next = next(self._blocks, None)

    @property
    def has_more(self) -> bool:
        """Return whether more blocks follow."""
        return self._next is not None


class SortedRows:
    """Collects rows, then returns them in order.

    `directory`: place of its files, whose space is freed when they are closed. `run_bytes`: size of the rows that are
    sorted at once. `kept_bytes`: size of sorted runs that stay in memory.
    """

    def __init__(self, directory: str | None, run_bytes: int, kept_bytes: int = 0) -> None:
        self._directory: Final = directory
        self._run_bytes: Final = run_bytes
        self._held: dict[int, list[pa.RecordBatch]] = {}
        self._held_bytes = 0
        self._left_bytes = kept_bytes
        # Input number and blocks of each run.
        self._runs: list[tuple[int, Iterator[pa.RecordBatch]]] = []
        self._files: list[IO[bytes]] = []

    def add(self, input_number: int, rows: pa.RecordBatch) -> None:
        """Add rows, whose memory is kept until they are sorted."""
        self._held.setdefault(input_number, []).append(rows)
        self._held_bytes += rows.get_total_buffer_size()
        if self._held_bytes >= self._run_bytes:
            for number, run in self._sorted_runs():
                # The memory of a key that is also a column counts once.
                size = run.get_total_buffer_size()
                is_kept = size <= self._left_bytes
                self._left_bytes -= size if is_kept else 0
                self._runs.append((number, _blocks(run) if is_kept else self._written(run)))

    def ordered(self) -> Iterator[OrderedRows]:
        """Yield all rows in order."""
        runs, self._runs = self._runs, []
        runs += [(number, _blocks(run)) for number, run in self._sorted_runs()]
        inputs: dict[int, int] = {}
        merged: list[_Run] = []
        for rank, (number, blocks) in enumerate(runs):
            inputs[rank] = number
            merged.append(_Run(rank, blocks))
        while merged := [
            run for run in merged if run.block is not None and run.block.rows.num_rows
        ]:
            heads = [run.block for run in merged if run.block is not None]
            bounds = [run.block.last for run in merged if run.has_more and run.block is not None]
            if bounds:
                bound = min(bounds)
                taken = [(inputs[head.rank], head.take_until(bound)) for head in heads]
            else:
                taken = [(inputs[head.rank], head.rows) for head in heads]
                for head in heads:
                    head.rows = head.rows.slice(head.rows.num_rows)
            yield _merged([(number, rows) for number, rows in taken if rows.num_rows])
            for run in merged:
                run.fill()

    def close(self) -> None:
        """Delete the files. Idempotent."""
        files, self._files = self._files, []
        for file in files:
            file.close()

    def _sorted_runs(self) -> list[tuple[int, pa.RecordBatch]]:
        held, self._held, self._held_bytes = self._held, {}, 0
        return [(number, _sorted(held.pop(number))) for number in sorted(held)]

    def _written(self, run: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Write a run to a file; return an iterator that reads it again."""
        file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - `close` does
        self._files.append(file)
        run = without_repeated_key(run)
        with pa.ipc.new_stream(pa.PythonFile(file, mode="w"), run.schema) as stream:
            for block in _blocks(run):
                stream.write_batch(block)
        file.seek(0)
        return map(with_repeated_key, _stored_blocks(file))


def _blocks(run: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, run.num_rows, _BLOCK_ROWS):
        yield run.slice(start, _BLOCK_ROWS)


def _stored_blocks(file: IO[bytes]) -> Iterator[pa.RecordBatch]:
    yield from pa.ipc.open_stream(pa.PythonFile(file, mode="r"))


def _times(rows: pa.RecordBatch) -> Timestamps | None:
    if TIMESTAMP_COLUMN not in rows.schema.names:
        return None
    return rows.column(TIMESTAMP_COLUMN).to_numpy()


def _order(hashes: KeyHashes, times: Timestamps | None) -> RowOrder:
    """Return the row order by hash, then by time. Fast if the rows consist of a few sorted runs."""
    if times is None or _rises(times):
        return np.argsort(hashes, kind="stable")
    return np.lexsort((times, hashes))


def _rises(times: Timestamps) -> bool:
    return bool((times[1:] >= times[:-1]).all())


def _order_of_any(hashes: KeyHashes, times: Timestamps | None) -> RowOrder:
    """Return the same as `_order`, fast for rows in any order."""
    if times is None or _rises(times):
        return stable_order(hashes)
    by_time = stable_order(times)
    return by_time[stable_order(hashes[by_time])]


def _sorted(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return all rows in order; clears `batches`, so that their memory is freed before more is allocated."""
    place = batches[0].schema.get_field_index(KEY_COLUMN)
    index = _column_of_key(batches, place)
    if index is not None:
        # The key need not be reordered a second time.
        batches[:] = [without_column(batch, place) for batch in batches]
    rows = as_one_batch(batches)
    batches.clear()
    order = _order_of_any(rows.column(KEY_HASH_COLUMN).to_numpy(), _times(rows))
    ordered = in_order(rows, order)
    return ordered if index is None else with_key_at(ordered, index, place)


def _column_of_key(batches: Sequence[pa.RecordBatch], place: int) -> int | None:
    """Return the index of the column that shares the key's memory in all batches; None if there is none."""
    schema = batches[0].schema
    if place < 0 or any(not batch.schema.equals(schema) for batch in batches):
        return None
    for index in range(len(schema)):
        if index != place and all(
            _is_same(batch.column(index), batch.column(place)) for batch in batches
        ):
            return index
    return None


def _is_same(one: pa.Array, other: pa.Array) -> bool:
    return (one.type, one.offset, _addresses(one)) == (other.type, other.offset, _addresses(other))


def _addresses(array: pa.Array) -> list[int | None]:
    return [None if buffer is None else buffer.address for buffer in array.buffers()]


def _merged(parts: Sequence[tuple[int, pa.RecordBatch]]) -> OrderedRows:
    """Merge sorted rows; for equal hashes and times, rows of earlier parts come first."""
    hashes = np.concatenate([rows.column(KEY_HASH_COLUMN).to_numpy() for _, rows in parts])
    inputs = np.concatenate([np.full(rows.num_rows, number, np.int8) for number, rows in parts])
    if len(parts) == 1:
        ((number, rows),) = parts
        return OrderedRows(inputs, hashes, {number: rows})
    as_stretches = _merged_stretches(parts)
    if as_stretches is not None:
        hashes = as_stretches.column(KEY_HASH_COLUMN).to_numpy()
        return OrderedRows(inputs, hashes, {parts[0][0]: as_stretches})
    known = [_times(rows) for _, rows in parts]
    times: Timestamps | None = None
    if any(one is not None for one in known):
        times = np.concatenate(
            [
                np.full(rows.num_rows, MIN_TIMESTAMP) if one is None else one
                for one, (_, rows) in zip(known, parts, strict=True)
            ]
        )
    order = _order(hashes, times)
    sides = sorted({number for number, _ in parts})
    rows_of = {
        side: as_one_batch([rows for number, rows in parts if number == side]) for side in sides
    }
    if len(sides) == 1:
        rows_of = {sides[0]: in_order(rows_of[sides[0]], order)}
    else:
        # The position of each row among those of its input.
        places = np.empty(len(order), np.int64)
        for side in sides:
            is_own = inputs == side
            places[is_own] = np.arange(is_own.sum())
        rows_of = {
            side: rows.take(pa.array(places[order][inputs[order] == side]))
            for side, rows in rows_of.items()
        }
    return OrderedRows(inputs[order], hashes[order], rows_of)


def _merged_stretches(parts: Sequence[tuple[int, pa.RecordBatch]]) -> pa.RecordBatch | None:
    """Merge rows of one input with few keys and without times; return None for others."""
    schema = parts[0][1].schema
    if TIMESTAMP_COLUMN in schema.names or any(
        number != parts[0][0] or not rows.schema.equals(schema) for number, rows in parts
    ):
        return None
    firsts: list[KeyHashes] = []
    stretches: list[tuple[pa.RecordBatch, int, int]] = []
    for _, rows in parts:
        hashes: KeyHashes = rows.column(KEY_HASH_COLUMN).to_numpy()
        starts = np.concatenate(([0], np.flatnonzero(hashes[1:] != hashes[:-1]) + 1))
        if len(starts) * _STRETCH_ROWS > len(hashes):
            return None
        firsts.append(hashes[starts])
        bounds = [*starts.tolist(), len(hashes)]
        stretches += [(rows, begin, end) for begin, end in pairwise(bounds)]
    order = np.argsort(np.concatenate(firsts), kind="stable").tolist()
    in_order = [stretches[place] for place in order]
    return pa.concat_batches([rows.slice(begin, end - begin) for rows, begin, end in in_order])


def as_one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return all rows as one batch; a batch may lack the timestamps or row kinds that another one has."""
    schema = batches[0].schema
    if all(batch.schema.equals(schema) for batch in batches[1:]):
        return pa.concat_batches(batches)
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    table = pa.concat_tables(tables, promote_options="default")
    names = [name for name in table.column_names if name not in _LAST_COLUMNS]
    table = table.select([*names, *(one for one in _LAST_COLUMNS if one in table.column_names)])
    for name, missing in ((ROW_KIND_COLUMN, 0), (TIMESTAMP_COLUMN, MIN_TIMESTAMP)):
        index = table.schema.get_field_index(name)
        if index >= 0:
            table = table.set_column(index, name, table.column(index).fill_null(missing))
    return table.combine_chunks().to_batches()[0]
