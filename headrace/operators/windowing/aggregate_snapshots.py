"""The state of the aggregate operator as files: one row per window and key, accumulators in columns.

Columns: `key_group`, `key` (a struct of the key columns), `window_start` (epoch ms), `has_fired`, `rows`, then for each
input column its count of values and one column per accumulator. Nothing on the way is a Python object but the keys.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.checkpoint.handles import StateChunk, StateTable
from headrace.checkpoint.storage.snapshot_files import SnapshotWriter
from headrace.core.barriers import CheckpointOptions
from headrace.core.key_groups import key_groups_of
from headrace.core.key_hash import hash_array, hash_keys
from headrace.core.types.arrow_mapping import VALUE_COLUMN, arrow_type_of, data_schema
from headrace.operators.windowing.aggregates import FrozenAggregates, WindowAggregates
from headrace.operators.windowing.slots import FrozenWindow, SlotTable
from headrace.state.columns import KEY, KEY_GROUP, WINDOW_START, is_opaque
from headrace.state.evolution import StateIncompatibleError
from headrace.state.keyed_chunks import ChunkFiles, read_tables
from headrace.state.operator_states import OperatorStates
from headrace.state.queryable.live_rows import (
    LivePiece,
    LiveRows,
    LiveSource,
    PiecedRows,
    refuse_keys,
)
from headrace.state.restored import KeySpace

NAME: Final = "window-aggregates"
_HAS_FIRED: Final = "has_fired"
_PIECE_ROWS: Final = 65_536


@dataclass(frozen=True)
class KeyColumns:
    """The columns that make the key, and how they are hashed where the stream is keyed."""

    fields: tuple[pa.Field, ...]
    key_space: KeySpace

    def struct_of(self, keys: Sequence[tuple[Any, ...]]) -> pa.StructArray:
        """Return keys as one struct column."""
        arrays = [
            pa.array([key[index] for key in keys], type=field.type)
            for index, field in enumerate(self.fields)
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(self.fields))

    def key_groups(self, keys: pa.StructArray) -> npt.NDArray[np.int32]:
        """Return the key group of each key: by the hash that the exchange uses."""
        key_type = self.key_space.key_type
        names = data_schema(key_type).names
        array: pa.Array = keys.field(0)
        if len(self.fields) > 1 or names != [VALUE_COLUMN]:
            array = pa.StructArray.from_arrays(keys.flatten(), names=names)
        if is_opaque(key_type):
            hashes = hash_keys(array.to_pylist())
        else:
            hashes = hash_array(array.cast(arrow_type_of(key_type)))
        return key_groups_of(hashes, self.key_space.max_parallelism)


class AggregateSnapshots:
    """Takes snapshots of slots and accumulators. See Snapshotable."""

    def __init__(self, slots: SlotTable, aggregates: WindowAggregates, keys: KeyColumns) -> None:
        self._slots = slots
        self._aggregates = aggregates
        self._keys = keys

    def restore(self, states: OperatorStates) -> None:
        """Go on with what was restored, and be part of snapshots."""
        chunks = states.register(NAME, self)
        for table in read_tables(chunks, states.reader, states.key_space.key_groups):
            self._load(table)

    def live_source(self) -> LiveSource:
        return LiveSource(StateTable.COLUMNAR, NAME, self._live_rows)

    def _live_rows(self, keys: pa.Array | None) -> LiveRows:
        refuse_keys(NAME, keys)
        windows, aggregates = self._slots.freeze(), self._aggregates.freeze()
        return PiecedRows(
            partial(_live_pieces, windows, aggregates, self._keys),
            lambda: _rows_of((), aggregates, self._keys),
        )

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> "FrozenWindowAggregates":
        """See Snapshotable. Copies arrays of numbers, and no Python object."""
        return FrozenWindowAggregates(self._slots.freeze(), self._aggregates.freeze(), self._keys)

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        pass

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        pass

    def _load(self, table: pa.Table) -> None:
        key_structs = table.column(KEY).combine_chunks()
        names = [field.name for field in self._keys.fields]
        if key_structs.type != pa.struct(self._keys.fields):
            raise StateIncompatibleError(
                f"window aggregates were stored with the key {key_structs.type}, now it is made of {names}: "
                "a key cannot change"
            )
        keys = list(zip(*(one.to_pylist() for one in key_structs.flatten()), strict=True))
        starts = table.column(WINDOW_START).to_numpy()
        slots = self._slots.restore(starts.tolist(), keys, table.column(_HAS_FIRED).to_pylist())
        self._aggregates.grow(self._slots.capacity)
        self._aggregates.restore(starts, slots, self._column_reader(table))

    @staticmethod
    def _column_reader(table: pa.Table) -> Callable[[str], pa.Array]:
        def column(name: str) -> pa.Array:
            if name not in table.column_names:
                raise StateIncompatibleError(
                    f"window aggregates were stored without '{name}': an aggregate cannot be added to windows that "
                    "are open; give the operator another uid to begin anew"
                )
            return table.column(name).combine_chunks()

        return column


class FrozenWindowAggregates:
    """Frozen window aggregates, written as state chunks."""

    def __init__(
        self, windows: Sequence[FrozenWindow], aggregates: FrozenAggregates, keys: KeyColumns
    ) -> None:
        self._windows = windows
        self._aggregates: FrozenAggregates | None = aggregates
        self._keys = keys

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        assert self._aggregates is not None
        if not self._windows:
            return ()
        table = _rows_of(self._windows, self._aggregates, self._keys)
        order = np.argsort(table.column(KEY_GROUP).to_numpy(), kind="stable")
        ordered = table.take(pa.array(order)).combine_chunks()
        files = ChunkFiles(StateTable.COLUMNAR, NAME, {}, writer)
        for offset in range(0, ordered.num_rows, _PIECE_ROWS):
            files.add(ordered.slice(offset, _PIECE_ROWS))
        return files.finish()

    def discard(self) -> None:
        self._windows, self._aggregates = (), None


def _rows_of(
    windows: Sequence[FrozenWindow], aggregates: FrozenAggregates, key_columns: KeyColumns
) -> pa.Table:
    keys = key_columns.struct_of([key for window in windows for key in window.keys()])
    slots = np.array([slot for one in windows for slot in one.slots()], np.int64)
    counts = np.array([window.count for window in windows], np.int64)
    starts = np.repeat(np.array([one.start for one in windows], np.int64), counts)
    fired = [has_fired for window in windows for has_fired in window.has_fired()]
    columns: dict[str, pa.Array] = {
        KEY_GROUP: pa.array(key_columns.key_groups(keys)),
        KEY: keys,
        WINDOW_START: pa.array(starts),
        _HAS_FIRED: pa.array(fired, pa.bool_()),
    }
    return pa.table(columns | aggregates.stored(starts, slots))


def _live_pieces(
    windows: Sequence[FrozenWindow],
    aggregates: FrozenAggregates,
    keys: KeyColumns,
    count: Callable[[], int],
) -> Iterator[LivePiece]:
    for window in windows:
        first = 0
        while first < window.count:
            part = replace(window, first=first, count=min(window.count - first, count()))
            first += part.count
            yield LivePiece(_rows_of([part], aggregates, keys), part.count)
