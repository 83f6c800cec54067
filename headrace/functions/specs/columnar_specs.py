"""Specs of vectorised operators and of full partitions, and the columns between local and global phases.

A two-phase aggregation runs once before the exchange, over the rows of each subtask, and again after it, over these
partial results. Source: Flink's two-phase aggregation, LocalSlicingWindowAggOperator.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, ClassVar, Final

import pyarrow as pa

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.operator_spec import OperatorSpec
from headrace.core.types.type_info import TypeInformation
from headrace.functions.specs.operator_specs import ColumnAggregate, FunctionSpec

SLICE: Final = "$slice"
"""Column of partial results: the start of their slice of event time, epoch ms."""
ROWS: Final = "$rows"
"""Column of partial results: the number of rows that they stand for."""
MERGEABLE_AGGREGATES: Final = (
    "counts, counts of distinct texts, integers or truth values, "
    "and sums, means, minima and maxima of signed integers"
)
"""Aggregates without a `slicing_obstacle`, in words."""
MERGEABLE_KEYS: Final = "per key of texts, integers or truth values"
"""Key columns without a `slicing_obstacle`, in words."""
HALF_BITS: Final = 32
"""Bits by which integers are shifted for the sum of their upper halves: see `SlicedAggregation.upper_name`."""
TIME_LIMIT_MS: Final = (2**63 - 1) // 1000
"""Limit of milliseconds since 1970, because columns of times hold microseconds in 64 bits."""
START: Final = "$start"
"""Column of partial results of sessions: event time of the first row they stand for, epoch ms."""
LAST: Final = "$last"
"""Column of partial results of sessions: event time of the last row they stand for, epoch ms."""


@dataclass(frozen=True)
class EventTimeWindows:
    """Tumbling and sliding windows in event time, and the slices that several windows share. All in ms.

    Windows of length `size` begin every `slide` from `offset` on. A slice is a stretch of time that lies in the same
    windows from beginning to end.
    """

    size: int
    slide: int
    offset: int

    @property
    def slice_ms(self) -> int:
        """Return the length of a slice."""
        return gcd(self.size, self.slide)

    @property
    def is_until_end_of_input(self) -> bool:
        """Return whether there is only one window, which ends with the input: see END_OF_INPUT."""
        return self.size == MAX_WATERMARK

    def last_due(self, watermark_ms: int) -> int:
        """Return the latest start of a window whose end the watermark has passed."""
        return max(watermark_ms - self.size + 1, MIN_TIMESTAMP)


END_OF_INPUT: Final = EventTimeWindows(MAX_WATERMARK, MAX_WATERMARK, 0)
"""One window, [0, the last watermark), for rows of any time or none, which operators treat as rows of time 0.

Its results have no window columns and no timestamps. Source: Flink GlobalWindows.createWithEndOfStreamTrigger.
"""


@dataclass(frozen=True)
class SlicedAggregation:
    """Aggregates of columns per key and window, whose partial results may be merged in any order."""

    windows: EventTimeWindows
    key_columns: tuple[str, ...]
    aggregates: tuple[ColumnAggregate, ...]

    def partial_name(self, index: int) -> str:
        """Return the name of the column with the partial result of an aggregate."""
        return f"${index}"

    def upper_name(self, index: int) -> str:
        """Return the name of the column with the sum of upper halves for a partial mean, whose sum may wrap."""
        return f"${index}_upper"

    def count_name(self, index: int) -> str:
        """Return the name of the column with the count for a partial mean."""
        return f"${index}_count"

    @property
    def distinct_names(self) -> tuple[str, ...]:
        """Return the names of the columns of values to be counted once each: lists of distinct values, without nulls.

        Long lists are cut: the pieces after the first are partial results of their own, which stand for no rows and
        have null in the columns of counts and sums.
        """
        return tuple(
            self.partial_name(index)
            for index, one in enumerate(self.aggregates)
            if one.function == "count_distinct"
        )

    def partial_schema(self, columns: pa.Schema) -> pa.Schema:
        """Return the columns of partial results over a stream with `columns`."""
        fields = [columns.field(name) for name in self.key_columns]
        fields += [pa.field(SLICE, pa.int64()), pa.field(ROWS, pa.int64())]
        for index, one in enumerate(self.aggregates):
            if one.column is None:
                continue
            fields.append(pa.field(self.partial_name(index), _partial_type(one, columns)))
            if one.function == "mean":
                fields.append(pa.field(self.upper_name(index), pa.int64()))
                fields.append(pa.field(self.count_name(index), pa.int64()))
        return pa.schema(fields)


def _partial_type(aggregate: ColumnAggregate, columns: pa.Schema) -> pa.DataType:
    if aggregate.function == "count_distinct":
        return pa.list_(columns.field(aggregate.column).type)
    keeps_type = aggregate.function in ("min", "max")
    return columns.field(aggregate.column).type if keeps_type else pa.int64()


def can_be_sliced(
    aggregates: tuple[ColumnAggregate, ...], key_columns: tuple[str, ...], columns: pa.Schema
) -> bool:
    """Return whether partial results of these aggregates merge to exactly the same result, however rows were cut."""
    return slicing_obstacle(aggregates, key_columns, columns) is None


def slicing_obstacle(
    aggregates: tuple[ColumnAggregate, ...], key_columns: tuple[str, ...], columns: pa.Schema
) -> str | None:
    """Name the first aggregate or key column whose partial results could merge to another result, or None.

    Sums of floating numbers depend on their order, first and last on the order of arrival, quantiles on all values.
    """
    for one in aggregates:
        if not _merges(one, columns):
            of_type = "" if one.column is None else f" of type {columns.field(one.column).type}"
            return f"{one.function}({one.column or ''}){of_type}"
    for name in key_columns:
        if not _is_plain_key(columns.field(name).type):
            return f"the key column '{name}' of type {columns.field(name).type}"
    return None


def _merges(aggregate: ColumnAggregate, columns: pa.Schema) -> bool:
    if aggregate.function == "count":
        return True
    if aggregate.function == "count_distinct" and aggregate.column is not None:
        return _is_plain_key(columns.field(aggregate.column).type)
    if aggregate.function not in ("sum", "mean", "min", "max") or aggregate.column is None:
        return False
    # Of 64 bits without a sign the sum is another type's; the plain operator knows what to make of it.
    return pa.types.is_signed_integer(columns.field(aggregate.column).type)


def _is_plain_key(key_type: pa.DataType) -> bool:
    kinds = pa.types
    return kinds.is_integer(key_type) or kinds.is_string(key_type) or kinds.is_boolean(key_type)


@dataclass(frozen=True)
class LocalAggregateSpec(OperatorSpec):
    """The half before the exchange: turns rows into partial results."""

    aggregation: SlicedAggregation
    kind: ClassVar[str] = "local_aggregate"
    default_name: ClassVar[str] = "LocalWindowAggregate"


@dataclass(frozen=True)
class SlicedAggregateSpec(OperatorSpec):
    """The half after the exchange: turns partial results into key columns, window and aggregates."""

    aggregation: SlicedAggregation
    kind: ClassVar[str] = "sliced_aggregate"
    default_name: ClassVar[str] = "Window Aggregate"


@dataclass(frozen=True)
class ExtremeRows:
    """Selects the rows with the largest (or smallest) value of `column` in their window, per key if there is one.

    Windows are tumbling: `windows.size == windows.slide`.
    """

    windows: EventTimeWindows
    key_columns: tuple[str, ...]
    column: str
    is_largest: bool


@dataclass(frozen=True)
class LocalExtremeRowsSpec(OperatorSpec):
    """Local phase, before the exchange: drops rows that cannot be selected.

    The others get the start of their window in `$slice`, and in `$rows` the number of rows that they stand for.
    """

    rows: ExtremeRows
    kind: ClassVar[str] = "local_extreme_rows"
    default_name: ClassVar[str] = "LocalExtremeRows"


@dataclass(frozen=True)
class ExtremeRowsSpec(OperatorSpec):
    """Global phase, after the exchange: emits whole rows when the window has ended."""

    rows: ExtremeRows
    kind: ClassVar[str] = "extreme_rows"
    default_name: ClassVar[str] = "Extreme Rows"


@dataclass(frozen=True)
class RankedRows:
    """Selects the first `count` rows in the order of `order_columns`, in their window, per key if there is one.

    Largest (or smallest) values come first, nulls last, and of equal rows the one that arrived first. Windows are
    tumbling: `windows.size == windows.slide`.
    """

    windows: EventTimeWindows
    key_columns: tuple[str, ...]
    order_columns: tuple[str, ...]
    is_largest: bool
    count: int


@dataclass(frozen=True)
class LocalRankedRowsSpec(OperatorSpec):
    """Local phase: drops rows that cannot be selected; `$slice` and `$rows` are those of LocalExtremeRowsSpec."""

    rows: RankedRows
    kind: ClassVar[str] = "local_ranked_rows"
    default_name: ClassVar[str] = "LocalRankedRows"


@dataclass(frozen=True)
class RankedRowsSpec(OperatorSpec):
    """Global phase, after the exchange: emits whole rows when the window has ended."""

    rows: RankedRows
    kind: ClassVar[str] = "ranked_rows"
    default_name: ClassVar[str] = "Ranked Rows"


def shared_key_columns(left_keys: Sequence[str], right_keys: Sequence[str]) -> frozenset[str]:
    """Return the columns with the same name and position in the keys of both sides, which have equal values."""
    return frozenset(
        left for left, right in zip(left_keys, right_keys, strict=True) if left == right
    )


@dataclass(frozen=True)
class RowJoinSpec(OperatorSpec):
    """Every pair of rows with the same key, at any time: columns of the left row, then those of the right one.

    `left_keys` and `right_keys`: names of the columns that make the key, in the same order; the right row's
    `shared_key_columns` are left out. Two keyed inputs.
    """

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    kind: ClassVar[str] = "row_join"
    default_name: ClassVar[str] = "Join Rows"


@dataclass(frozen=True)
class WindowRowJoinSpec(OperatorSpec):
    """Every pair of rows with the same key and tumbling window. Two keyed inputs; see RowJoinSpec."""

    windows: EventTimeWindows
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    kind: ClassVar[str] = "window_row_join"
    default_name: ClassVar[str] = "Window Join Rows"


@dataclass(frozen=True)
class SessionAggregation:
    """Aggregates per key and session: rows of a key that are at most `gap_ms` apart, in event time.

    A partial result has rows that are certainly in one session, because they are in one slice no longer than the gap.
    """

    gap_ms: int
    key_columns: tuple[str, ...]
    aggregates: tuple[ColumnAggregate, ...]

    @property
    def sliced(self) -> SlicedAggregation:
        """Return the same aggregates over those slices."""
        width = self.gap_ms + 1
        windows = EventTimeWindows(width, width, 0)
        return SlicedAggregation(windows, self.key_columns, self.aggregates)

    def partial_schema(self, columns: pa.Schema) -> pa.Schema:
        """Return the columns of partial results over a stream with `columns`."""
        schema = self.sliced.partial_schema(columns)
        return schema.append(pa.field(START, pa.int64())).append(pa.field(LAST, pa.int64()))


@dataclass(frozen=True)
class LocalSessionAggregateSpec(OperatorSpec):
    """The half before the exchange: turns rows into partial results."""

    aggregation: SessionAggregation
    kind: ClassVar[str] = "local_session_aggregate"
    default_name: ClassVar[str] = "LocalSessionAggregate"


@dataclass(frozen=True)
class SessionAggregateSpec(OperatorSpec):
    """The half after the exchange: turns partial results into the output columns of WindowAggregateSpec."""

    aggregation: SessionAggregation
    kind: ClassVar[str] = "session_aggregate"
    default_name: ClassVar[str] = "Session Aggregate"


class PartitionForm(enum.Enum):
    """Form in which a function receives all rows of a partition or key, and returns rows."""

    RECORDS = "records"
    ARROW = "pyarrow.Table"
    PANDAS = "pandas.DataFrame"


@dataclass(frozen=True)
class MapPartitionSpec(FunctionSpec):
    """`map_partition`: MapPartitionFunction or callable; `map_arrow` and `map_pandas`: a callable on columns."""

    form: PartitionForm = PartitionForm.RECORDS
    kind: ClassVar[str] = "map_partition"
    default_name: ClassVar[str] = "MapPartition"


@dataclass(frozen=True)
class SortPartitionSpec(OperatorSpec):
    """`sort_partition`: by `column`, or by the result of `selector` (KeySelector or callable); one of them is None."""

    column: str | None
    selector: Any
    is_descending: bool
    kind: ClassVar[str] = "sort_partition"
    default_name: ClassVar[str] = "SortPartition"

    def user_functions(self) -> tuple[object, ...]:
        """Return the selector, if any."""
        return () if self.selector is None else (self.selector,)


@dataclass(frozen=True)
class FoldPartitionSpec(FunctionSpec):
    """`reduce` and `aggregate` of all records of a subtask. `folded_type`: the type of the kept value."""

    folded_type: TypeInformation
    kind: ClassVar[str] = "fold_partition"
    default_name: ClassVar[str] = "PartitionReduce"
