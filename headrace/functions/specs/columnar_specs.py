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
"""Column of partial results: where their slice of event time begins, epoch ms."""
ROWS: Final = "$rows"
"""Column of partial results: how many rows they stand for."""
MERGEABLE_AGGREGATES: Final = (
    "counts, counts of distinct texts, integers or truth values, "
    "and sums, means, minima and maxima of signed integers"
)
"""Aggregates for which there is no `slicing_obstacle`, in words."""
MERGEABLE_KEYS: Final = "per key of texts, integers or truth values"
"""Key columns for which there is no `slicing_obstacle`, in words."""
HALF_BITS: Final = 32
"""Bits by which integers are shifted for the sum of their upper halves: see `SlicedAggregation.upper_name`."""
TIME_LIMIT_MS: Final = (2**63 - 1) // 1000
"""Limit of milliseconds from 1970: columns of times count microseconds, in 64 bits."""
START: Final = "$start"
"""Column of partial results of sessions: event time of the first row they stand for, epoch ms."""
LAST: Final = "$last"
"""Column of partial results of sessions: event time of the last row they stand for, epoch ms."""


@dataclass(frozen=True)
class EventTimeWindows:
    """Tumbling and sliding windows in event time, and the slices that several windows share. All in ms.

    Windows begin every `slide` from `offset` on and last `size`. A slice is the longest stretch of time that lies in
    the same windows from its beginning to its end, or a part of it.
    """

    size: int
    slide: int
    offset: int

    @property
    def slice_ms(self) -> int:
        """Length of a slice."""
        return gcd(self.size, self.slide)

    @property
    def is_until_end_of_input(self) -> bool:
        """Return whether there is one window only, which ends with the input: see END_OF_INPUT."""
        return self.size == MAX_WATERMARK

    def last_due(self, watermark_ms: int) -> int:
        """Return the latest beginning of a window whose end the watermark has passed."""
        return max(watermark_ms - self.size + 1, MIN_TIMESTAMP)


END_OF_INPUT: Final = EventTimeWindows(MAX_WATERMARK, MAX_WATERMARK, 0)
"""One window, [0, the last watermark), for rows of any time or none: operators take all of them for those of time 0.

What it gives has no window columns and no timestamps. Source: Flink GlobalWindows.createWithEndOfStreamTrigger.
"""


@dataclass(frozen=True)
class SlicedAggregation:
    """Aggregates of columns per key and window, whose halves may be merged in any order with the same result."""

    windows: EventTimeWindows
    key_columns: tuple[str, ...]
    aggregates: tuple[ColumnAggregate, ...]

    def partial_name(self, index: int) -> str:
        """Name of the column with the partial result of an aggregate."""
        return f"${index}"

    def upper_name(self, index: int) -> str:
        """Name of the column with the sum of the upper halves that belongs to a partial mean, whose sum may wrap."""
        return f"${index}_upper"

    def count_name(self, index: int) -> str:
        """Name of the column with the count that belongs to a partial mean."""
        return f"${index}_count"

    @property
    def distinct_names(self) -> tuple[str, ...]:
        """Names of the columns with the values that are counted once each: lists of different ones, without nulls.

        Longer lists are cut: the pieces behind the first one are partial results of their own, which stand for no rows
        and have null where counts and sums are added up.
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
    """Return whether halves of these aggregates merge to the very same result, however rows were cut."""
    return slicing_obstacle(aggregates, key_columns, columns) is None


def slicing_obstacle(
    aggregates: tuple[ColumnAggregate, ...], key_columns: tuple[str, ...], columns: pa.Schema
) -> str | None:
    """Name the first aggregate or key column for which halves could merge to another result; None: there is none.

    Sums of floating numbers depend on their order, first and last on who comes first, quantiles on all values.
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
    """The half before the exchange: rows in, partial results out."""

    aggregation: SlicedAggregation
    kind: ClassVar[str] = "local_aggregate"
    default_name: ClassVar[str] = "LocalWindowAggregate"


@dataclass(frozen=True)
class SlicedAggregateSpec(OperatorSpec):
    """The half behind the exchange: partial results in; key columns, window and aggregates out."""

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

    The others have the start of their window in `$slice`, and in `$rows` the number of rows that they stand for.
    """

    rows: ExtremeRows
    kind: ClassVar[str] = "local_extreme_rows"
    default_name: ClassVar[str] = "LocalExtremeRows"


@dataclass(frozen=True)
class ExtremeRowsSpec(OperatorSpec):
    """Global phase, behind the exchange: emits whole rows when the window has ended."""

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
    """Local phase: drops rows that cannot be selected; `$slice` and `$rows` as of LocalExtremeRowsSpec."""

    rows: RankedRows
    kind: ClassVar[str] = "local_ranked_rows"
    default_name: ClassVar[str] = "LocalRankedRows"


@dataclass(frozen=True)
class RankedRowsSpec(OperatorSpec):
    """Global phase, behind the exchange: emits whole rows when the window has ended."""

    rows: RankedRows
    kind: ClassVar[str] = "ranked_rows"
    default_name: ClassVar[str] = "Ranked Rows"


def shared_key_columns(left_keys: Sequence[str], right_keys: Sequence[str]) -> frozenset[str]:
    """Return the columns that have one name and one place in the keys of both sides, and so equal values."""
    return frozenset(
        left for left, right in zip(left_keys, right_keys, strict=True) if left == right
    )


@dataclass(frozen=True)
class RowJoinSpec(OperatorSpec):
    """Every pair of rows with one key, whenever they come: columns of the left row, then those of the right one.

    `left_keys` and `right_keys`: names of the columns that make the key, in the same order; of `shared_key_columns` the
    right row's are left out. Two keyed inputs.
    """

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    kind: ClassVar[str] = "row_join"
    default_name: ClassVar[str] = "Join Rows"


@dataclass(frozen=True)
class WindowRowJoinSpec(OperatorSpec):
    """Every pair of rows with one key and tumbling window. Two keyed inputs; see RowJoinSpec."""

    windows: EventTimeWindows
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    kind: ClassVar[str] = "window_row_join"
    default_name: ClassVar[str] = "Window Join Rows"


@dataclass(frozen=True)
class SessionAggregation:
    """Aggregates per key and session: rows of a key that are at most `gap_ms` apart, in event time.

    Partial results are of rows that are of one session for certain, as they lie in one slice no longer than the gap.
    """

    gap_ms: int
    key_columns: tuple[str, ...]
    aggregates: tuple[ColumnAggregate, ...]

    @property
    def sliced(self) -> SlicedAggregation:
        """The same aggregates over those slices."""
        width = self.gap_ms + 1
        windows = EventTimeWindows(width, width, 0)
        return SlicedAggregation(windows, self.key_columns, self.aggregates)

    def partial_schema(self, columns: pa.Schema) -> pa.Schema:
        """Return the columns of partial results over a stream with `columns`."""
        schema = self.sliced.partial_schema(columns)
        return schema.append(pa.field(START, pa.int64())).append(pa.field(LAST, pa.int64()))


@dataclass(frozen=True)
class LocalSessionAggregateSpec(OperatorSpec):
    """The half before the exchange: rows in, partial results out."""

    aggregation: SessionAggregation
    kind: ClassVar[str] = "local_session_aggregate"
    default_name: ClassVar[str] = "LocalSessionAggregate"


@dataclass(frozen=True)
class SessionAggregateSpec(OperatorSpec):
    """The half behind the exchange: partial results in; output columns as of WindowAggregateSpec."""

    aggregation: SessionAggregation
    kind: ClassVar[str] = "session_aggregate"
    default_name: ClassVar[str] = "Session Aggregate"


class PartitionForm(enum.Enum):
    """Form in which a function is given all rows of a partition or key, and gives back rows."""

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
    """`sort_partition`: by `column`, or by what `selector` (KeySelector or callable) returns; one of them is None."""

    column: str | None
    selector: Any
    is_descending: bool
    kind: ClassVar[str] = "sort_partition"
    default_name: ClassVar[str] = "SortPartition"

    def user_functions(self) -> tuple[object, ...]:
        """The selector, if any."""
        return () if self.selector is None else (self.selector,)


@dataclass(frozen=True)
class FoldPartitionSpec(FunctionSpec):
    """`reduce` and `aggregate` of all records of a subtask. `folded_type`: of what is kept of them."""

    folded_type: TypeInformation
    kind: ClassVar[str] = "fold_partition"
    default_name: ClassVar[str] = "PartitionReduce"
