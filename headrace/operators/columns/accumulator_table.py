"""AccumulatorTable: all accumulators of one operator, with the number of rows and of values in each slot."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.functions.specs.operator_specs import ColumnAggregate
from headrace.operators.columns.accumulators import (
    Accumulator,
    Counts,
    FrozenAccumulator,
    SlotIndexes,
    Values,
    WindowStarts,
    arrow_values,
    create_accumulator,
    numpy_values,
)

_FIRST_CAPACITY: Final = 64
_KEEPING_TYPE: Final = frozenset({"min", "max", "first", "last"})
_ROWS: Final = "rows"


class _Column:
    """The aggregates of one input column, and the number of non-null values in each slot."""

    def __init__(self, name: str, arrow_type: pa.DataType) -> None:
        self.name = name
        self.arrow_type = arrow_type
        self.counts: Counts = np.zeros(0, dtype=np.int64)
        self.accumulators: dict[int, Accumulator] = {}

    def update(
        self,
        column: pa.Array,
        rows: npt.NDArray[np.int64],
        starts: WindowStarts,
        slots: SlotIndexes,
    ) -> None:
        values, valid = _values_and_validity(column)
        picked = values[rows]
        if valid is not None:
            is_valid = valid[rows]
            picked, starts, slots = picked[is_valid], starts[is_valid], slots[is_valid]
        if len(slots) == 0:
            return
        for accumulator in self.accumulators.values():
            accumulator.update(starts, slots, picked, self.counts)
        np.add.at(self.counts, slots, 1)


def _values_and_validity(column: pa.Array) -> tuple[Values, npt.NDArray[np.bool_] | None]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count == 0:
        return numpy_values(column), None
    valid: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    present = numpy_values(column.drop_null())
    values = np.zeros(len(column), dtype=present.dtype)
    values[valid] = present
    return values, valid


class AccumulatorTable:
    """All accumulators of one operator, by slot; updated and read in columns.

    `types`: Arrow type of each input column by name. `targets`: Arrow type of each aggregate's result.
    """

    def __init__(
        self,
        aggregates: Sequence[ColumnAggregate],
        types: dict[str, pa.DataType],
        targets: Sequence[pa.DataType],
    ) -> None:
        self._aggregates = aggregates
        self._targets = targets
        self._columns: dict[str, _Column] = {}
        self._row_counts: Counts = np.zeros(0, dtype=np.int64)
        for index, aggregate in enumerate(aggregates):
            name = aggregate.column
            if name is None:
                continue
            arrow_type = types[name]
            if pa.types.is_dictionary(arrow_type):
                arrow_type = arrow_type.value_type
            column = self._columns.setdefault(name, _Column(name, arrow_type))
            if aggregate.function != "count":
                column.accumulators[index] = create_accumulator(
                    aggregate.function, aggregate.parameter, arrow_type
                )

    def grow(self, capacity: int) -> None:
        """Make room for slots 0 to capacity-1."""
        if capacity <= len(self._row_counts):
            return
        capacity = max(capacity, 2 * len(self._row_counts), _FIRST_CAPACITY)
        self._row_counts = _grown(self._row_counts, capacity)
        for column in self._columns.values():
            column.counts = _grown(column.counts, capacity)
            for accumulator in column.accumulators.values():
                accumulator.grow(capacity)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all slots, including free ones."""
        columns = self._columns.values()
        accumulators = (one for column in columns for one in column.accumulators.values())
        size = self._row_counts.nbytes + sum(column.counts.nbytes for column in columns)
        return size + sum(one.size_bytes for one in accumulators)

    def update(
        self,
        columns: pa.RecordBatch,
        rows: npt.NDArray[np.int64],
        starts: WindowStarts,
        slots: SlotIndexes,
    ) -> None:
        """Fold pairs of row and window, all of shape (pairs,), into their slots, in this order."""
        np.add.at(self._row_counts, slots, 1)
        for column in self._columns.values():
            column.update(columns.column(column.name), rows, starts, slots)

    def results(self, starts: Sequence[int], slots: SlotIndexes) -> list[pa.Array]:
        """Return one array per aggregate, of shape (slots,); `starts` are the windows the slots belong to."""
        results: list[pa.Array] = []
        for index, aggregate in enumerate(self._aggregates):
            target = self._targets[index]
            if aggregate.column is None:
                results.append(pa.array(self._row_counts[slots]).cast(target))
                continue
            column = self._columns[aggregate.column]
            counts = column.counts[slots]
            accumulator = column.accumulators.get(index)
            if accumulator is None:
                results.append(pa.array(counts).cast(target))
                continue
            values: Any = accumulator.result(starts, slots, counts)
            source = column.arrow_type if aggregate.function in _KEEPING_TYPE else target
            results.append(arrow_values(values, counts == 0, source, target))
        return results

    def freeze(self) -> "FrozenAccumulators":
        """Return the present contents of all slots, unaffected by later changes."""
        return FrozenAccumulators(
            self._row_counts.copy(),
            {name: column.counts.copy() for name, column in self._columns.items()},
            {
                self._stored_name(index): accumulator.freeze(column.arrow_type)
                for column in self._columns.values()
                for index, accumulator in column.accumulators.items()
            },
        )

    def restore(
        self, starts: WindowStarts, slots: SlotIndexes, stored: Callable[[str], pa.Array]
    ) -> None:
        """Fill slots, which were reset before, from `FrozenAccumulators.stored`; `stored` returns a column by name."""
        self._row_counts[slots] = stored(_ROWS).to_numpy()
        for name, column in self._columns.items():
            column.counts[slots] = stored(_count_name(name)).to_numpy()
            for index, accumulator in column.accumulators.items():
                accumulator.restore(starts, slots, stored(self._stored_name(index)))

    def _stored_name(self, index: int) -> str:
        """Return a name derived from the computation, so that a reordered or renamed aggregate finds its column."""
        aggregate = self._aggregates[index]
        parameter = "" if aggregate.parameter is None else f"_{aggregate.parameter}"
        return f"{aggregate.function}{parameter}_{aggregate.column}"

    def reset(self, starts: Sequence[int], slots: SlotIndexes) -> None:
        """Clear the slots of windows."""
        self._row_counts[slots] = 0
        for column in self._columns.values():
            column.counts[slots] = 0
            for accumulator in column.accumulators.values():
                accumulator.reset(slots, starts)


def _count_name(column: str) -> str:
    return f"count_{column}"


@dataclass(frozen=True)
class FrozenAccumulators:
    """Frozen accumulators by slot."""

    row_counts: Counts
    counts: dict[str, Counts]
    accumulators: dict[str, FrozenAccumulator]

    def stored(self, starts: WindowStarts, slots: SlotIndexes) -> dict[str, pa.Array]:
        """Return the contents of `slots`, of the windows at `starts`: one array of shape (slots,) per column."""
        columns: dict[str, pa.Array] = {_ROWS: pa.array(self.row_counts[slots])}
        for name, counts in self.counts.items():
            columns[_count_name(name)] = pa.array(counts[slots])
        for name, accumulator in self.accumulators.items():
            columns[name] = accumulator(starts, slots)
        return columns


def _grown(counts: Counts, capacity: int) -> Counts:
    return np.concatenate([counts, np.zeros(capacity - len(counts), dtype=np.int64)])
