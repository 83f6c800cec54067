"""Adds built-in aggregates of windows, which are computed on whole batches, and refuses unsupported windows.

If it changes no result, an aggregation has two operators: one before the exchange makes partial results, and one
after it merges them into windows. `in_two_phases` adds such a pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.api.columns.aggregates import Aggregate, aggregated_type, without_conditions
from headrace.api.columns.expressions import columns_of
from headrace.api.streams.data_stream import DataStream
from headrace.api.streams.keyed_stream import KeyedStream
from headrace.api.streams.window_settings import (
    declare_late_outputs,
    ends_with_input,
    event_time_windows,
    id_of,
)
from headrace.core.errors import ProgramError
from headrace.core.operator_spec import OperatorSpec
from headrace.core.record_batch import BatchType
from headrace.core.types.arrow_types import type_info_from_schema
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.evictors import Evictor
from headrace.functions.process import OutputTag
from headrace.functions.specs.columnar_specs import (
    MERGEABLE_AGGREGATES,
    MERGEABLE_KEYS,
    SLICE,
    LocalAggregateSpec,
    LocalSessionAggregateSpec,
    SessionAggregateSpec,
    SessionAggregation,
    SlicedAggregateSpec,
    SlicedAggregation,
    can_be_sliced,
    slicing_obstacle,
)
from headrace.functions.specs.operator_specs import ColumnAggregate, WindowAggregateSpec
from headrace.functions.windowing.assigners import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowStagger,
)
from headrace.functions.windowing.triggers import Trigger


def in_two_phases(
    before: DataStream,
    phases: tuple[OperatorSpec, OperatorSpec],
    partial_schema: pa.Schema,
    partial_keys: tuple[str, ...],
    output_type: TypeInformation,
    *,
    key_type: TypeInformation | None = None,
    name: str,
    description: str,
) -> DataStream:
    """Add the first half to the producers of `before`, which is not keyed, and the second half keyed by `partial_keys`.

    `partial_schema`: the columns between the phases, including `partial_keys`. `key_type` None means the types of the
    key columns. `name` and `description` are those of the second half.
    """
    environment = before.get_execution_environment()
    local = environment.add_to_producers(
        phases[0], before.transformation, BatchType(type_info_from_schema(partial_schema))
    )
    partials = DataStream(environment, local)
    if key_type is None:
        keyed = partials.key_by(*partial_keys)
    else:
        keyed = KeyedStream(partials, None, partial_keys, key_type)
    operator = environment.add_operator(
        phases[1],
        (keyed.transformation,),
        BatchType(output_type),
        name=name,
        description=description,
        is_function=True,
    )
    return DataStream(environment, operator)


def sliced_aggregation(
    stream: DataStream,
    keys: tuple[str, ...],
    assigner: Any,
    aggregates: tuple[ColumnAggregate, ...],
) -> SlicedAggregation | None:
    """Return the aggregation in two operators, or None if that could change a result."""
    columns = columns_of(stream.get_type(), "aggregate")
    windows = event_time_windows(assigner)
    if windows.size < windows.slide or not can_be_sliced(aggregates, keys, columns):
        return None
    return SlicedAggregation(windows, keys, aggregates)


def aggregate_sessions(
    keyed_stream: KeyedStream,
    assigner: EventTimeSessionWindows[Any],
    aggregates: tuple[ColumnAggregate, ...],
    output_type: TypeInformation,
    description: str,
) -> DataStream:
    """Add aggregates of sessions; ProgramError for aggregates that cannot be merged from partial results."""
    columns = columns_of(keyed_stream.get_type(), "aggregate")
    keys = keyed_stream.key_columns
    obstacle = slicing_obstacle(aggregates, keys, columns)
    if obstacle is not None:
        raise ProgramError(
            f"built-in aggregates of sessions cannot take {obstacle}: they are {MERGEABLE_AGGREGATES}, "
            f"{MERGEABLE_KEYS}; pass an AggregateFunction for others"
        )
    aggregation = SessionAggregation(assigner.session_gap, keys, aggregates)
    return in_two_phases(
        keyed_stream.origin,
        (LocalSessionAggregateSpec(aggregation), SessionAggregateSpec(aggregation)),
        aggregation.partial_schema(columns),
        keys,
        output_type,
        key_type=keyed_stream.get_key_type(),
        name=type(assigner).__name__,
        description=description,
    )


def aggregate_in_two_phases(
    before: DataStream,
    key_type: TypeInformation,
    aggregation: SlicedAggregation,
    output_type: TypeInformation,
    name: str,
    description: str,
) -> DataStream:
    """Add both phases, the first one in the chain of the stream before `key_by`.

    Without key columns windows, which have one slice each, are spread over the subtasks.
    """
    schema = aggregation.partial_schema(columns_of(before.get_type(), "aggregate"))
    return in_two_phases(
        before,
        (LocalAggregateSpec(aggregation), SlicedAggregateSpec(aggregation)),
        schema,
        aggregation.key_columns or (SLICE,),
        output_type,
        key_type=key_type,
        name=name,
        description=description,
    )


_LATE: Final = "lateness or side output"


@dataclass(frozen=True)
class AskedWindows:
    """Settings of windows over which columns are aggregated."""

    assigner: Any
    trigger: Trigger[Any, Any] | None
    evictor: Evictor[Any, Any] | None
    allowed_lateness_ms: int
    late_tag: OutputTag | None

    @property
    def drop_late_rows(self) -> bool:
        """Return whether rows that arrive after their window has fired are dropped and counted."""
        return self.late_tag is None and self.allowed_lateness_ms == 0


def aggregate_columns(
    stream: DataStream, windows: AskedWindows, aggregates: Sequence[Any]
) -> DataStream:
    """Add the aggregation of a stream that is keyed by columns, or of one without keys."""
    for one in aggregates:
        if not isinstance(one, Aggregate):
            raise TypeError(f"aggregate takes built-in aggregates (headrace.agg), not {one!r}")
    _check_windows(windows)
    if not isinstance(stream, KeyedStream):
        return _aggregate_all(stream, windows, aggregates)
    if not stream.key_columns:
        raise ProgramError(
            "built-in aggregates need a stream keyed by the names of its columns: key_by('...')"
        )
    description = _description(windows, aggregates)
    before, plain = without_conditions(stream.origin, stream.key_columns, aggregates)
    if before is not stream.origin:
        stream = KeyedStream(before, None, stream.key_columns, stream.get_key_type())
    output_type = _output_type(before, stream.key_columns, windows, plain)
    chosen = tuple(one.column_aggregate for one in plain)
    if isinstance(windows.assigner, EventTimeSessionWindows):
        if not windows.drop_late_rows:
            raise ProgramError(
                "built-in aggregates of sessions take no lateness and no side output"
            )
        return aggregate_sessions(stream, windows.assigner, chosen, output_type, description)
    if windows.drop_late_rows:
        sliced = sliced_aggregation(before, stream.key_columns, windows.assigner, chosen)
        if sliced is not None:
            name = type(windows.assigner).__name__
            key_type = stream.get_key_type()
            return aggregate_in_two_phases(before, key_type, sliced, output_type, name, description)
    _require_plain_operator(before, stream.key_columns, windows, plain)
    operator = stream.get_execution_environment().add_operator(
        WindowAggregateSpec(
            assigner=windows.assigner,
            allowed_lateness_ms=windows.allowed_lateness_ms,
            late_tag_id=id_of(windows.late_tag),
            aggregates=chosen,
            key_columns=stream.key_columns,
        ),
        (stream.transformation,),
        BatchType(output_type),
        name=type(windows.assigner).__name__,
        description=description,
        is_function=True,
    )
    declare_late_outputs(operator, windows.late_tag)
    return DataStream(stream.get_execution_environment(), operator)


def _aggregate_all(
    stream: DataStream, windows: AskedWindows, aggregates: Sequence[Aggregate]
) -> DataStream:
    """Add the aggregation of a stream without keys, whose windows are spread over subtasks."""
    is_one_slice = isinstance(windows.assigner, TumblingEventTimeWindows)
    if not (is_one_slice or ends_with_input(windows.assigner)) or not windows.drop_late_rows:
        raise ProgramError(
            "built-in aggregates without a key need tumbling event-time windows, or "
            "GlobalWindows.create_with_end_of_stream_trigger(), without lateness or side output"
        )
    before, plain = without_conditions(stream, (), aggregates)
    output_type = _output_type(before, (), windows, plain)
    chosen = tuple(one.column_aggregate for one in plain)
    sliced = sliced_aggregation(before, (), windows.assigner, chosen)
    if sliced is None:
        obstacle = slicing_obstacle(chosen, (), columns_of(before.get_type(), "aggregate"))
        raise ProgramError(
            f"built-in aggregates without a key cannot take {obstacle}: they are {MERGEABLE_AGGREGATES}; "
            "pass an AggregateFunction for others"
        )
    name, description = type(windows.assigner).__name__, _description(windows, aggregates)
    return aggregate_in_two_phases(before, Types.LONG(), sliced, output_type, name, description)


def _description(windows: AskedWindows, aggregates: Sequence[Aggregate]) -> str:
    shown = ", ".join(repr(one) for one in aggregates)
    return f"Window({windows.assigner!r}, EventTimeTrigger, {shown})"


def _output_type(
    before: DataStream,
    key_columns: tuple[str, ...],
    windows: AskedWindows,
    aggregates: Sequence[Aggregate],
) -> TypeInformation:
    has_times = not ends_with_input(windows.assigner)
    return aggregated_type(before.get_type(), key_columns, aggregates, has_times=has_times)


def _require_plain_operator(
    before: DataStream,
    key_columns: tuple[str, ...],
    windows: AskedWindows,
    aggregates: Sequence[Aggregate],
) -> None:
    """Raise ProgramError for aggregates that need two operators but cannot be split."""
    distinct = [one for one in aggregates if one.column_aggregate.function == "count_distinct"]
    if not distinct and not ends_with_input(windows.assigner):
        return
    chosen = tuple(one.column_aggregate for one in aggregates)
    obstacle = slicing_obstacle(
        chosen, key_columns, columns_of(before.get_type(), "aggregate")
    ) or ("windows with gaps between them" if windows.drop_late_rows else _LATE)
    if ends_with_input(windows.assigner):
        raise ProgramError(
            f"built-in aggregates up to the end of input cannot take {obstacle}: they are {MERGEABLE_AGGREGATES}, "
            f"{MERGEABLE_KEYS}, without {_LATE}"
        )
    raise ProgramError(
        f"{distinct[0]!r} cannot be computed, because of {obstacle}: with distinct counts a window takes only "
        f"{MERGEABLE_AGGREGATES}, {MERGEABLE_KEYS}, without gaps between windows, {_LATE}"
    )


def _check_windows(windows: AskedWindows) -> None:
    """Raise ProgramError if built-in aggregates do not support these windows."""
    assigner = windows.assigner
    has_times = isinstance(
        assigner, TumblingEventTimeWindows | SlidingEventTimeWindows | EventTimeSessionWindows
    )
    if not has_times and not ends_with_input(assigner):
        raise ProgramError(
            "built-in aggregates need tumbling, sliding or session windows in event time, or "
            "GlobalWindows.create_with_end_of_stream_trigger(), not "
            f"{type(assigner).__name__}: pass an AggregateFunction for those"
        )
    if windows.trigger is not None:
        raise ProgramError(
            "built-in aggregates fire when a window ends: they take no other trigger"
        )
    if windows.evictor is not None:
        raise ProgramError(
            "built-in aggregates keep no records that an evictor could remove: "
            "pass an AggregateFunction"
        )
    if getattr(assigner, "stagger", WindowStagger.ALIGNED) is not WindowStagger.ALIGNED:
        raise ProgramError(
            "built-in aggregates need aligned windows, not staggered ones: "
            "pass an AggregateFunction for those"
        )
