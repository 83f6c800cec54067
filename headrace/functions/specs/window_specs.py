"""Specs of windows and joins, operators over records of the same time."""

from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.core.operator_spec import OperatorSpec
from headrace.core.types.type_info import TypeInformation
from headrace.functions.specs.operator_specs import FunctionSpec


@dataclass(frozen=True)
class WindowSpec(OperatorSpec):
    """A window with a user function.

    `incremental` is the ReduceFunction or AggregateFunction (or callable, for reduce) that folds records as they
    come, or None; `window_function` a (Process)(All)WindowFunction or None. At least one of them is set. `is_keyed`
    is False for `window_all`. `trigger` None means the assigner's default. `late_tag_id` None drops late records
    (counted). With an `evictor` records are kept as they are, and folded when the window fires. `accumulator_type`: of
    an AggregateFunction's accumulators, which are pickled without.
    """

    assigner: Any
    trigger: Any
    allowed_lateness_ms: int
    late_tag_id: str | None
    incremental: Any
    window_function: Any
    is_keyed: bool
    evictor: Any = None
    accumulator_type: TypeInformation | None = None
    kind: ClassVar[str] = "window"
    default_name: ClassVar[str] = "Window"

    def user_functions(self) -> tuple[object, ...]:
        """The functions that are set."""
        return tuple(f for f in (self.incremental, self.window_function) if f is not None)


@dataclass(frozen=True)
class TwoStreamWindowSpec(OperatorSpec):
    """A window over two keyed streams. Two inputs.

    `function` is given what both have for a key and window; `trigger` and the tags of late records of either stream
    as in WindowSpec. Triggers and evictors see TaggedUnions.
    """

    assigner: Any
    trigger: Any
    evictor: Any
    allowed_lateness_ms: int
    late_tag_ids: tuple[str | None, str | None]
    function: Any

    def user_functions(self) -> tuple[object, ...]:
        """The one function."""
        return (self.function,)


@dataclass(frozen=True)
class CoGroupSpec(TwoStreamWindowSpec):
    """`co_group`: a CoGroupFunction or callable that gets both sides of a window. Two keyed inputs."""

    kind: ClassVar[str] = "co_group"
    default_name: ClassVar[str] = "CoGroup"


@dataclass(frozen=True)
class WindowJoinSpec(TwoStreamWindowSpec):
    """`join`: a JoinFunction, FlatJoinFunction or callable for each pair in a window. Two keyed inputs."""

    kind: ClassVar[str] = "window_join"
    default_name: ClassVar[str] = "Join"


@dataclass(frozen=True)
class IntervalJoinSpec(FunctionSpec):
    """`interval_join`: a ProcessJoinFunction for each pair that is close in event time. Two keyed inputs.

    A pair is close where right - left is in [`lower_bound_ms`, `upper_bound_ms`]. `late_tag_ids`: of the left and the
    right stream; None drops late records (counted).
    """

    lower_bound_ms: int
    upper_bound_ms: int
    late_tag_ids: tuple[str | None, str | None]
    kind: ClassVar[str] = "interval_join"
    default_name: ClassVar[str] = "Interval Join"


@dataclass(frozen=True)
class ColumnAggregate:
    """One built-in aggregate of a window: `function` over `column`, into `output_name`.

    `function`: count, count_distinct, sum, mean, min, max, quantile (with `parameter` in [0, 1]), first, last. count of
    column None counts rows.
    """

    function: str
    column: str | None
    output_name: str
    parameter: float | None = None


@dataclass(frozen=True)
class WindowAggregateSpec(OperatorSpec):
    """Built-in aggregates on event-time tumbling or sliding windows: the vectorised path.

    Output columns: key columns, `window_start` and `window_end` (timestamp[ms]), then one per aggregate.
    """

    assigner: Any
    allowed_lateness_ms: int
    late_tag_id: str | None
    aggregates: tuple[ColumnAggregate, ...]
    key_columns: tuple[str, ...]
    kind: ClassVar[str] = "window_aggregate"
    default_name: ClassVar[str] = "Window Aggregate"
