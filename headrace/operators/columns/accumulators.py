"""Accumulators of the built-in aggregates: one numpy column per aggregate, with one entry per slot.

A slot is the small number of a key and window. Rows are folded into their slots in row order (`ufunc.at` is
unbuffered), so that a floating-point sum does not depend on how rows were cut into batches. Accumulators never see a
null: `AccumulatorTable`, which holds all accumulators of an operator, leaves nulls out and counts values per slot.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.functions.specs.operator_specs import ColumnAggregate
from headrace.operators.columns.integer_columns import exact_means, upper_halves
from headrace.state.evolution import StateIncompatibleError

Values = npt.NDArray[Any]
Counts = npt.NDArray[np.int64]
SlotIndexes = npt.NDArray[np.int64]
WindowStarts = npt.NDArray[np.int64]

_FIRST_CAPACITY: Final = 64
_KEEPING_TYPE: Final = frozenset({"min", "max", "first", "last"})
_ROWS: Final = "rows"
_OBJECT_BYTES: Final = 64
"""What a text or another object takes that numpy refers to, approximately."""

FrozenAccumulator = Callable[[WindowStarts, SlotIndexes], pa.Array]
"""(starts, slots) -> what the slots held when it was frozen, shape (slots,); any thread."""


class Accumulator(Protocol):
    """One aggregate of one column."""

    @property
    def size_bytes(self) -> int:
        """What all slots hold."""
        ...

    def grow(self, capacity: int) -> None:
        """Make room for slots 0..capacity-1."""
        ...

    def reset(self, slots: SlotIndexes, starts: Sequence[int]) -> None:
        """Forget what `slots`, those of the windows at `starts`, hold."""
        ...

    def update(
        self, starts: WindowStarts, slots: SlotIndexes, values: Values, counts: Counts
    ) -> None:
        """Fold values, all of shape (rows,), into their slots; `counts`: values that each slot had before."""
        ...

    def result(self, starts: Sequence[int], slots: SlotIndexes, counts: Counts) -> Values:
        """Return the result of each slot, of the windows at `starts`; `counts` of its values, shape (slots,).

        Where a count is 0 the result does not matter: it becomes null.
        """
        ...

    def freeze(self, arrow_type: pa.DataType) -> FrozenAccumulator:
        """Return the contents of all slots, to be stored; `arrow_type`: of the column that is aggregated."""
        ...

    def restore(self, starts: WindowStarts, slots: SlotIndexes, stored: pa.Array) -> None:
        """Fill slots that hold nothing, all of shape (slots,)."""
        ...


class ColumnAccumulator:
    """Base: one array that begins with `initial`."""

    def __init__(self, dtype: npt.DTypeLike, initial: Any) -> None:
        self._initial = initial
        self._held: Values = np.full(0, initial, dtype=dtype)

    @property
    def size_bytes(self) -> int:
        is_object = self._held.dtype.kind == "O"
        return self._held.nbytes + (_OBJECT_BYTES * len(self._held) if is_object else 0)

    def grow(self, capacity: int) -> None:
        more = capacity - len(self._held)
        if more > 0:
            tail = np.full(more, self._initial, dtype=self._held.dtype)
            self._held = np.concatenate([self._held, tail])

    def reset(self, slots: SlotIndexes, starts: Sequence[int]) -> None:
        self._held[slots] = self._initial

    def result(self, starts: Sequence[int], slots: SlotIndexes, counts: Counts) -> Values:
        return self._held[slots]

    def freeze(self, arrow_type: pa.DataType) -> FrozenAccumulator:
        held: Values = self._held.copy()
        if held.dtype.kind == "O":
            return lambda starts, slots: pa.array(held[slots].tolist(), type=arrow_type)
        return lambda starts, slots: pa.array(held[slots])

    def restore(self, starts: WindowStarts, slots: SlotIndexes, stored: pa.Array) -> None:
        if self._held.dtype.kind == "O":
            values = np.empty(len(stored), dtype=object)
            values[:] = stored.to_pylist()
            self._held[slots] = values
        else:
            self._held[slots] = stored.to_numpy()


class FoldAccumulator(ColumnAccumulator):
    """sum, min, max of numbers: a binary ufunc."""

    def __init__(self, fold: np.ufunc, dtype: npt.DTypeLike, initial: Any) -> None:
        super().__init__(dtype, initial)
        self._fold = fold

    def update(
        self, starts: WindowStarts, slots: SlotIndexes, values: Values, counts: Counts
    ) -> None:
        with np.errstate(
            invalid="ignore", over="ignore"
        ):  # NaN and infinity are values like others
            self._fold.at(self._held, slots, values.astype(self._held.dtype, copy=False))


class MeanAccumulator(FoldAccumulator):
    """Sum of floating numbers divided by count."""

    def result(self, starts: Sequence[int], slots: SlotIndexes, counts: Counts) -> Values:
        means: Values = self._held[slots] / np.maximum(counts, 1)
        return means


class IntegerMeanAccumulator:
    """Whole sum of integers, which 64 bits need not hold, divided by count."""

    def __init__(self) -> None:
        self._sums = FoldAccumulator(np.add, np.int64, 0)
        self._upper_sums = FoldAccumulator(np.add, np.int64, 0)

    @property
    def size_bytes(self) -> int:
        return self._sums.size_bytes + self._upper_sums.size_bytes

    def grow(self, capacity: int) -> None:
        self._sums.grow(capacity)
        self._upper_sums.grow(capacity)

    def reset(self, slots: SlotIndexes, starts: Sequence[int]) -> None:
        self._sums.reset(slots, starts)
        self._upper_sums.reset(slots, starts)

    def update(
        self, starts: WindowStarts, slots: SlotIndexes, values: Values, counts: Counts
    ) -> None:
        self._sums.update(starts, slots, values, counts)
        self._upper_sums.update(starts, slots, upper_halves(values), counts)

    def result(self, starts: Sequence[int], slots: SlotIndexes, counts: Counts) -> Values:
        sums = self._sums.result(starts, slots, counts)
        upper_sums = self._upper_sums.result(starts, slots, counts)
        return exact_means(sums, upper_sums, counts)

    def freeze(self, arrow_type: pa.DataType) -> FrozenAccumulator:
        parts = [self._sums.freeze(arrow_type), self._upper_sums.freeze(arrow_type)]

        def stored(starts: WindowStarts, slots: SlotIndexes) -> pa.Array:
            arrays = [part(starts, slots) for part in parts]
            return pa.StructArray.from_arrays(arrays, names=["sum", "upper_sum"])

        return stored

    def restore(self, starts: WindowStarts, slots: SlotIndexes, stored: pa.Array) -> None:
        if not pa.types.is_struct(stored.type):
            raise StateIncompatibleError(
                "a mean of integers was stored as one sum, which may have wrapped: give the operator another uid to "
                "begin anew"
            )
        sums, upper_sums = stored.flatten()
        self._sums.restore(starts, slots, sums)
        self._upper_sums.restore(starts, slots, upper_sums)


class ExtremeObjectAccumulator(ColumnAccumulator):
    """min and max of values that are no numbers to numpy: texts, decimals."""

    def __init__(self, takes_smaller: bool) -> None:
        super().__init__(object, None)
        self._takes_smaller = takes_smaller

    def update(
        self, starts: WindowStarts, slots: SlotIndexes, values: Values, counts: Counts
    ) -> None:
        held: Any = self._held
        takes_smaller = self._takes_smaller
        for slot, value in zip(slots.tolist(), values, strict=True):
            best = held[slot]
            if best is None or (value < best if takes_smaller else value > best):
                held[slot] = value


class LastAccumulator(ColumnAccumulator):
    """The value of the row that came last."""

    def update(
        self, starts: WindowStarts, slots: SlotIndexes, values: Values, counts: Counts
    ) -> None:
        # Of several assignments to one slot numpy keeps the last.
        self._held[slots] = values


class FirstAccumulator(ColumnAccumulator):
    """The value of the row that came first."""

    def update(
        self, starts: WindowStarts, slots: SlotIndexes, values: Values, counts: Counts
    ) -> None:
        is_first = counts[slots] == 0
        self._held[slots[is_first][::-1]] = values[is_first][::-1]


class QuantileAccumulator:
    """The exact quantile: keeps every value until its window goes, in chunks per window.

    Between neighbours it is interpolated linearly with the weights and the order of operations of Spark's
    `percentile`, so that results are equal to the last bit.
    """

    def __init__(self, quantile: float) -> None:
        self._quantile = quantile
        self._chunks: dict[int, list[tuple[SlotIndexes, Values]]] = {}
        self.size_bytes = 0

    def grow(self, capacity: int) -> None:
        pass

    def reset(self, slots: SlotIndexes, starts: Sequence[int]) -> None:
        for start in starts:
            for slots_of_rows, values in self._chunks.pop(start, ()):
                self.size_bytes -= slots_of_rows.nbytes + values.nbytes

    def update(
        self, starts: WindowStarts, slots: SlotIndexes, values: Values, counts: Counts
    ) -> None:
        order = np.argsort(starts, kind="stable")
        ordered = starts[order]
        begins = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
        values = values.astype(np.float64, copy=False)
        for rows in np.split(order, begins[1:]):
            chunks = self._chunks.setdefault(int(starts[rows[0]]), [])
            chunk = slots[rows], values[rows]
            chunks.append(chunk)
            self.size_bytes += chunk[0].nbytes + chunk[1].nbytes

    def result(self, starts: Sequence[int], slots: SlotIndexes, counts: Counts) -> Values:
        chunks = [chunk for start in starts for chunk in self._chunks.get(start, ())]
        results = np.zeros(len(slots), dtype=np.float64)
        filled = counts > 0
        if not chunks or not filled.any():
            return results
        all_slots = np.concatenate([chunk[0] for chunk in chunks])
        all_values = np.concatenate([chunk[1] for chunk in chunks])
        order = np.lexsort((all_values, all_slots))
        sorted_values = all_values[order]
        begins = np.searchsorted(all_slots[order], slots[filled])
        positions = (counts[filled] - 1) * self._quantile
        lower, higher = np.floor(positions), np.ceil(positions)
        low = sorted_values[begins + lower.astype(np.int64)]
        high = sorted_values[begins + higher.astype(np.int64)]
        between = (higher - positions) * low + (positions - lower) * high
        results[filled] = np.where((lower == higher) | (low == high), low, between)
        return results

    def freeze(self, arrow_type: pa.DataType) -> FrozenAccumulator:
        # Chunks are never changed, only their lists are.
        frozen = [chunk for chunks in self._chunks.values() for chunk in chunks]

        def stored(starts: WindowStarts, slots: SlotIndexes) -> pa.Array:
            all_slots = np.concatenate([np.zeros(0, np.int64), *(chunk[0] for chunk in frozen)])
            all_values = np.concatenate([np.zeros(0, np.float64), *(chunk[1] for chunk in frozen)])
            return _lists_by_slot(slots, all_slots, all_values)

        return stored

    def restore(self, starts: WindowStarts, slots: SlotIndexes, stored: pa.Array) -> None:
        lengths = np.diff(stored.offsets.to_numpy())
        values = stored.flatten().to_numpy()
        if len(values) == 0:
            return
        self.update(np.repeat(starts, lengths), np.repeat(slots, lengths), values, lengths)


def _lists_by_slot(slots: SlotIndexes, all_slots: SlotIndexes, all_values: Values) -> pa.ListArray:
    """Return a list per slot of `slots` (distinct): its values, in order; `all_values` belong to `all_slots`."""
    order = np.argsort(all_slots, kind="stable")
    ordered = all_slots[order]
    begins = np.searchsorted(ordered, slots, side="left")
    lengths = np.searchsorted(ordered, slots, side="right") - begins
    offsets = np.zeros(len(slots) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    positions = np.repeat(begins - offsets[:-1], lengths) + np.arange(offsets[-1])
    values = pa.array(all_values[order][positions])
    return pa.LargeListArray.from_arrays(pa.array(offsets), values)


def create_accumulator(
    function: str, parameter: float | None, arrow_type: pa.DataType
) -> Accumulator:
    """Return the accumulator of an aggregate over values that `numpy_values` made of a column of `arrow_type`."""
    dtype = _numpy_type(arrow_type)
    is_float, is_object = dtype.kind == "f", dtype.kind == "O"
    match function:
        case "sum":
            return FoldAccumulator(np.add, np.float64 if is_float else np.int64, 0)
        case "mean" if is_float:
            return MeanAccumulator(np.add, np.float64, 0)
        case "mean":
            return IntegerMeanAccumulator()
        case "min" | "max" if is_object:
            return ExtremeObjectAccumulator(function == "min")
        case "min" if is_float:
            # NaN is larger than every number, as in Spark.
            return FoldAccumulator(np.fmin, dtype, np.nan)
        case "max" if is_float:
            return FoldAccumulator(np.maximum, dtype, -np.inf)
        case "min":
            return FoldAccumulator(np.minimum, dtype, np.iinfo(dtype).max)
        case "max":
            return FoldAccumulator(np.maximum, dtype, np.iinfo(dtype).min)
        case "first":
            return FirstAccumulator(dtype, None if is_object else 0)
        case "last":
            return LastAccumulator(dtype, None if is_object else 0)
        case "quantile":
            assert parameter is not None
            return QuantileAccumulator(parameter)
        case _:
            raise AssertionError(f"no aggregate function {function}")


def numpy_values(array: pa.Array) -> Values:
    """Return a column without nulls as numbers, or as objects where numpy has no number for them."""
    arrow_type = array.type
    if pa.types.is_boolean(arrow_type):
        return array.to_numpy(zero_copy_only=False).astype(np.int8)
    if _numpy_type(arrow_type).kind == "O":
        values = np.empty(len(array), dtype=object)
        values[:] = array.to_pylist()
        return values
    if pa.types.is_temporal(arrow_type):
        array = array.view(pa.int32() if arrow_type.bit_width == 32 else pa.int64())
    return array.to_numpy()


def arrow_values(
    values: Values, is_null: npt.NDArray[np.bool_], source: pa.DataType, target: pa.DataType
) -> pa.Array:
    """Return results as a column of `target`; `source` is the type that `numpy_values` read them from."""
    if values.dtype.kind == "O":
        held = [None if null else value for value, null in zip(values, is_null, strict=True)]
        return pa.array(held, type=source).cast(target)
    array = pa.array(values, mask=is_null)
    if pa.types.is_temporal(source) and pa.types.is_temporal(target):
        array = array.view(source)
    return array.cast(target)


def _numpy_type(arrow_type: pa.DataType) -> np.dtype[Any]:
    types = pa.types
    if types.is_boolean(arrow_type):
        return np.dtype(np.int8)
    if types.is_integer(arrow_type) or types.is_floating(arrow_type):
        return np.dtype(arrow_type.to_pandas_dtype())
    if types.is_temporal(arrow_type) and not types.is_interval(arrow_type):
        return np.dtype(np.int32 if arrow_type.bit_width == 32 else np.int64)
    return np.dtype(object)


class _Column:
    """The aggregates of one input column, and how many values that are not null each slot has seen."""

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
    """All accumulators of one operator, by slot: fed by columns, read as columns.

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
        """Make room for slots 0..capacity-1."""
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
        """What all slots hold, those that are free as well."""
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
        """Return what all slots hold; later changes do not show."""
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
        """Fill slots, reset before, with what `FrozenAccumulators.stored` gave; `stored` finds a column by name."""
        self._row_counts[slots] = stored(_ROWS).to_numpy()
        for name, column in self._columns.items():
            column.counts[slots] = stored(_count_name(name)).to_numpy()
            for index, accumulator in column.accumulators.items():
                accumulator.restore(starts, slots, stored(self._stored_name(index)))

    def _stored_name(self, index: int) -> str:
        """Return a name made of what is computed, so that a reordered or renamed aggregate finds its column."""
        aggregate = self._aggregates[index]
        parameter = "" if aggregate.parameter is None else f"_{aggregate.parameter}"
        return f"{aggregate.function}{parameter}_{aggregate.column}"

    def reset(self, starts: Sequence[int], slots: SlotIndexes) -> None:
        """Forget windows and their slots."""
        self._row_counts[slots] = 0
        for column in self._columns.values():
            column.counts[slots] = 0
            for accumulator in column.accumulators.values():
                accumulator.reset(slots, starts)


def _count_name(column: str) -> str:
    return f"count_{column}"


@dataclass(frozen=True)
class FrozenAccumulators:
    """All accumulators as they were, by slot."""

    row_counts: Counts
    counts: dict[str, Counts]
    accumulators: dict[str, FrozenAccumulator]

    def stored(self, starts: WindowStarts, slots: SlotIndexes) -> dict[str, pa.Array]:
        """Return what `slots`, those of the windows at `starts`, hold: one array of shape (slots,) per column."""
        columns: dict[str, pa.Array] = {_ROWS: pa.array(self.row_counts[slots])}
        for name, counts in self.counts.items():
            columns[_count_name(name)] = pa.array(counts[slots])
        for name, accumulator in self.accumulators.items():
            columns[name] = accumulator(starts, slots)
        return columns


def _grown(counts: Counts, capacity: int) -> Counts:
    return np.concatenate([counts, np.zeros(capacity - len(counts), dtype=np.int64)])
