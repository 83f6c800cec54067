"""Accumulators of the built-in aggregates: one numpy column per aggregate, with one entry per slot.

A slot is the small number of a key and window. Rows are folded into their slots in row order (`ufunc.at` is
unbuffered), so that a floating-point sum does not depend on how rows were cut into batches. Accumulators never see a
null: an AccumulatorTable, which holds all accumulators of an operator, leaves nulls out and counts values per slot.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.operators.columns.integer_columns import exact_means, upper_halves
from headrace.state.evolution import StateIncompatibleError

Values = npt.NDArray[Any]
Counts = npt.NDArray[np.int64]
SlotIndexes = npt.NDArray[np.int64]
WindowStarts = npt.NDArray[np.int64]

_OBJECT_BYTES: Final = 64
"""Approximate bytes of a text or another object that numpy refers to."""

FrozenAccumulator = Callable[[WindowStarts, SlotIndexes], pa.Array]
"""Function of (starts, slots) that returns the slots' contents at the freeze, shape (slots,); any thread."""


class Accumulator(Protocol):
    """One aggregate of one column."""

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all slots."""
        ...

    def grow(self, capacity: int) -> None:
        """Make room for slots 0 to capacity-1."""
        ...

    def reset(self, slots: SlotIndexes, starts: Sequence[int]) -> None:
        """Clear `slots`, of the windows at `starts`."""
        ...

    def update(
        self, starts: WindowStarts, slots: SlotIndexes, values: Values, counts: Counts
    ) -> None:
        """Fold values, all of shape (rows,), into their slots; `counts`: number of values in each slot before."""
        ...

    def result(self, starts: Sequence[int], slots: SlotIndexes, counts: Counts) -> Values:
        """Return the result of each slot, of the windows at `starts`; `counts`: number of its values, shape (slots,).

        If a count is 0 the result does not matter: it becomes null.
        """
        ...

    def freeze(self, arrow_type: pa.DataType) -> FrozenAccumulator:
        """Return the contents of all slots for storage; `arrow_type`: type of the aggregated column."""
        ...

    def restore(self, starts: WindowStarts, slots: SlotIndexes, stored: pa.Array) -> None:
        """Fill empty slots from stored contents, all of shape (slots,)."""
        ...


class ColumnAccumulator:
    """Base: one array with the initial value `initial`."""

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
    """Fold of numbers by a binary ufunc: sum, min, max."""

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
    """Sum of integers, which may exceed 64 bits, divided by count."""

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
                "a mean of integers was stored as one sum, which may have overflowed: give the operator another uid "
                "to start with empty state"
            )
        sums, upper_sums = stored.flatten()
        self._sums.restore(starts, slots, sums)
        self._upper_sums.restore(starts, slots, upper_sums)


class ExtremeObjectAccumulator(ColumnAccumulator):
    """min and max of values that numpy does not have as numbers: texts, decimals."""

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
    """Value of the row that came last."""

    def update(
        self, starts: WindowStarts, slots: SlotIndexes, values: Values, counts: Counts
    ) -> None:
        # Of several assignments to one slot numpy keeps the last.
        self._held[slots] = values


class FirstAccumulator(ColumnAccumulator):
    """Value of the row that came first."""

    def update(
        self, starts: WindowStarts, slots: SlotIndexes, values: Values, counts: Counts
    ) -> None:
        is_first = counts[slots] == 0
        self._held[slots[is_first][::-1]] = values[is_first][::-1]


class QuantileAccumulator:
    """The exact quantile: keeps every value until its window is removed, in chunks per window.

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
    """Return the accumulator of an aggregate over values from `numpy_values` of a column of `arrow_type`."""
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
    """Return a column without nulls as numbers, or as objects if numpy has no number type for them."""
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
    """Return results as a column of `target`; `source` is the type of the column that `numpy_values` converted."""
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
