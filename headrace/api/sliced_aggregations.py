"""Built-in aggregates in two halves: partial results before the exchange, windows made of them behind it."""

from typing import Any

from headrace.api.data_stream import DataStream
from headrace.api.event_time_windows import event_time_windows
from headrace.api.expressions import columns_of
from headrace.api.halves import in_halves
from headrace.api.keyed_stream import KeyedStream
from headrace.core.errors import ProgramError
from headrace.core.types.type_info import TypeInformation
from headrace.functions.columnar_specs import (
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
from headrace.functions.session_assigners import EventTimeSessionWindows
from headrace.functions.window_specs import ColumnAggregate


def sliced_aggregation(
    stream: DataStream,
    keys: tuple[str, ...],
    assigner: Any,
    aggregates: tuple[ColumnAggregate, ...],
) -> SlicedAggregation | None:
    """Return the aggregation in two halves, or None where that could change a result."""
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
    """Add aggregates of sessions; ProgramError where they cannot be made of parts."""
    columns = columns_of(keyed_stream.get_type(), "aggregate")
    keys = keyed_stream.key_columns
    obstacle = slicing_obstacle(aggregates, keys, columns)
    if obstacle is not None:
        raise ProgramError(
            f"built-in aggregates of sessions cannot take {obstacle}: they are {MERGEABLE_AGGREGATES}, "
            f"{MERGEABLE_KEYS}; pass an AggregateFunction for others"
        )
    aggregation = SessionAggregation(assigner.session_gap, keys, aggregates)
    return in_halves(
        keyed_stream.origin,
        (LocalSessionAggregateSpec(aggregation), SessionAggregateSpec(aggregation)),
        aggregation.partial_schema(columns),
        keys,
        output_type,
        key_type=keyed_stream.get_key_type(),
        name=type(assigner).__name__,
        description=description,
    )


def aggregate_in_halves(
    before: DataStream,
    key_type: TypeInformation,
    aggregation: SlicedAggregation,
    output_type: TypeInformation,
    name: str,
    description: str,
) -> DataStream:
    """Add both halves, the first one in the chain of the stream before `key_by`.

    Without key columns whole windows, which have one slice each, are spread over subtasks.
    """
    schema = aggregation.partial_schema(columns_of(before.get_type(), "aggregate"))
    return in_halves(
        before,
        (LocalAggregateSpec(aggregation), SlicedAggregateSpec(aggregation)),
        schema,
        aggregation.key_columns or (SLICE,),
        output_type,
        key_type=key_type,
        name=name,
        description=description,
    )
