"""Built-in aggregates in two halves: partial results before the exchange, windows made of them behind it."""

from typing import Any

import pyarrow as pa

from headrace.api.data_stream import DataStream
from headrace.api.expressions import columns_of
from headrace.api.keyed_stream import KeyedStream
from headrace.core.errors import ProgramError
from headrace.core.operator_spec import OperatorSpec
from headrace.core.record_batch import BatchType
from headrace.core.types.arrow_mapping import type_info_from_schema
from headrace.core.types.type_info import TypeInformation
from headrace.functions.assigners import GlobalWindows
from headrace.functions.columnar_specs import (
    END_OF_INPUT,
    MERGEABLE_AGGREGATES,
    MERGEABLE_KEYS,
    SLICE,
    EventTimeWindows,
    LocalAggregateSpec,
    LocalSessionAggregateSpec,
    SessionAggregateSpec,
    SessionAggregation,
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
from headrace.functions.triggers import EndOfStreamTrigger
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


def event_time_windows(assigner: Any) -> EventTimeWindows:
    """Return size, slide and offset of tumbling or sliding event-time windows; END_OF_INPUT for the window up to it."""
    if ends_with_input(assigner):
        return END_OF_INPUT
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


def one_slice_windows(assigner: Any, called: str) -> EventTimeWindows:
    """Return tumbling event-time windows, or END_OF_INPUT for the window that ends with it; ProgramError for others."""
    if ends_with_input(assigner):
        return END_OF_INPUT
    return aligned_tumbling_windows(
        assigner, called, or_else=", or GlobalWindows.create_with_end_of_stream_trigger()"
    )


def ends_with_input(assigner: Any) -> bool:
    """Whether there is one window, which fires when all input has ended."""
    return isinstance(assigner, GlobalWindows) and isinstance(
        assigner.default_trigger, EndOfStreamTrigger
    )


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
            f"built-in aggregates of sessions are {MERGEABLE_AGGREGATES}, {MERGEABLE_KEYS}: "
            "pass an AggregateFunction for others"
        )
    aggregation = SessionAggregation(assigner.session_gap, keys, aggregates)
    return _in_halves(
        keyed_stream.origin,
        keyed_stream.get_key_type(),
        (LocalSessionAggregateSpec(aggregation), SessionAggregateSpec(aggregation)),
        aggregation.partial_schema(columns),
        keys,
        output_type,
        type(assigner).__name__,
        description,
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
    return _in_halves(
        before,
        key_type,
        (LocalAggregateSpec(aggregation), SlicedAggregateSpec(aggregation)),
        schema,
        aggregation.key_columns or (SLICE,),
        output_type,
        name,
        description,
    )


def _in_halves(
    before: DataStream,
    key_type: TypeInformation,
    halves: tuple[OperatorSpec, OperatorSpec],
    partial_schema: pa.Schema,
    partial_keys: tuple[str, ...],
    output_type: TypeInformation,
    name: str,
    description: str,
) -> DataStream:
    """Add a half over the stream `before` the exchange, and one that is keyed by columns of its partial results."""
    environment = before.get_execution_environment()
    local = environment.add_operator(
        halves[0],
        (before.transformation,),
        BatchType(type_info_from_schema(partial_schema)),
        like=before.transformation,
    )
    partials = KeyedStream(DataStream(environment, local), None, partial_keys, key_type)
    operator = environment.add_operator(
        halves[1],
        (partials.transformation,),
        BatchType(output_type),
        name=name,
        description=description,
        is_function=True,
    )
    return DataStream(environment, operator)
