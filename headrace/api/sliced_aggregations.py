"""Built-in aggregates in two halves: partial results before the exchange, windows made of them behind it."""

from typing import Any

from headrace.api.data_stream import DataStream
from headrace.api.expressions import columns_of
from headrace.api.keyed_stream import KeyedStream
from headrace.core.errors import ProgramError
from headrace.core.record_batch import BatchType
from headrace.core.types.arrow_mapping import type_info_from_schema
from headrace.core.types.type_info import TypeInformation
from headrace.functions.columnar_specs import (
    EventTimeWindows,
    LocalAggregateSpec,
    SessionAggregateSpec,
    SlicedAggregateSpec,
    SlicedAggregation,
    can_be_sliced,
)
from headrace.functions.session_assigners import EventTimeSessionWindows
from headrace.functions.time_assigners import (
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowStagger,
)
from headrace.functions.window_specs import ColumnAggregate


def sliced_aggregation(
    keyed_stream: KeyedStream, assigner: Any, aggregates: tuple[ColumnAggregate, ...]
) -> SlicedAggregation | None:
    """Return the aggregation in two halves, or None where that could change a result."""
    columns = columns_of(keyed_stream.get_type(), "aggregate")
    windows = event_time_windows(assigner)
    keys = keyed_stream.key_columns
    if windows.size < windows.slide or not can_be_sliced(aggregates, keys, columns):
        return None
    return SlicedAggregation(windows, keys, aggregates)


def event_time_windows(assigner: Any) -> EventTimeWindows:
    """Return size, slide and offset of tumbling or sliding event-time windows."""
    assert isinstance(assigner, TumblingEventTimeWindows | SlidingEventTimeWindows)
    is_sliding = isinstance(assigner, SlidingEventTimeWindows)
    slide = assigner.slide if is_sliding else assigner.size
    return EventTimeWindows(assigner.size, slide, assigner.offset)


def aligned_tumbling_windows(assigner: Any, called: str, *, or_else: str = "") -> EventTimeWindows:
    """Return size and offset of tumbling event-time windows; ProgramError, naming what was called, for any others.

    `or_else`: what may be given in their place, as people are told it.
    """
    is_tumbling = isinstance(assigner, TumblingEventTimeWindows)
    if not is_tumbling or assigner.stagger is not WindowStagger.ALIGNED:
        raise ProgramError(
            f"{called} needs tumbling event-time windows that are aligned{or_else}, not {assigner!r}"
        )
    return event_time_windows(assigner)


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
    if not can_be_sliced(aggregates, keys, columns):
        raise ProgramError(
            "built-in aggregates of sessions are counts, and sums, means, minima and maxima of integers, per key of "
            "texts, integers or truth values: pass an AggregateFunction for others"
        )
    operator = keyed_stream.get_execution_environment().add_operator(
        SessionAggregateSpec(assigner.session_gap, keys, aggregates),
        (keyed_stream.transformation,),
        BatchType(output_type),
        name=type(assigner).__name__,
        description=description,
        is_function=True,
    )
    return DataStream(keyed_stream.get_execution_environment(), operator)


def aggregate_in_halves(
    keyed_stream: KeyedStream,
    aggregation: SlicedAggregation,
    output_type: TypeInformation,
    name: str,
    description: str,
) -> DataStream:
    """Add both halves, the first one in the chain of the stream before `key_by`."""
    environment = keyed_stream.get_execution_environment()
    before = keyed_stream.origin
    schema = aggregation.partial_schema(columns_of(before.get_type(), "aggregate"))
    local = environment.add_operator(
        LocalAggregateSpec(aggregation),
        (before.transformation,),
        BatchType(type_info_from_schema(schema)),
        like=before.transformation,
    )
    partials = KeyedStream(
        DataStream(environment, local), None, aggregation.key_columns, keyed_stream.get_key_type()
    )
    operator = environment.add_operator(
        SlicedAggregateSpec(aggregation),
        (partials.transformation,),
        BatchType(output_type),
        name=name,
        description=description,
        is_function=True,
    )
    return DataStream(environment, operator)
