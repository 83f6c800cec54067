"""Which operator serves which kind of spec: the one table."""

from collections.abc import Callable
from typing import Any, Final

from headrace.core.operator_spec import OperatorSpec
from headrace.functions import columnar_specs, specs, window_specs
from headrace.operators.async_io import AsyncWaitOperator
from headrace.operators.broadcast import BroadcastProcessOperator, KeyedBroadcastProcessOperator
from headrace.operators.columnar import (
    CacheOperator,
    FilterExpressionOperator,
    MapBatchesOperator,
    ProjectOperator,
    SelectExpressionsOperator,
)
from headrace.operators.columns.local_aggregate import LocalAggregateOperator
from headrace.operators.columns.local_session_aggregate import LocalSessionAggregateOperator
from headrace.operators.columns.row_join import RowJoinOperator
from headrace.operators.columns.session_aggregate import SessionAggregateOperator
from headrace.operators.columns.sliced_aggregate import SlicedAggregateOperator
from headrace.operators.columns.window_row_join import WindowRowJoinOperator
from headrace.operators.columns.window_rows import LocalWindowRowsOperator, WindowRowsOperator
from headrace.operators.joins.interval_join import IntervalJoinOperator
from headrace.operators.joins.window_join import CoGroupOperator, WindowJoinOperator
from headrace.operators.keys import KeyByOperator, KeyedValuesOperator
from headrace.operators.operator import Operator
from headrace.operators.process import (
    CoProcessOperator,
    KeyedCoProcessOperator,
    KeyedProcessOperator,
    ProcessOperator,
)
from headrace.operators.record import (
    CoFlatMapOperator,
    CoMapOperator,
    FilterOperator,
    FlatMapOperator,
    MapOperator,
)
from headrace.operators.reduce import ReduceOperator, RollingAggregationOperator
from headrace.operators.sink_writer import SinkWriterOperator
from headrace.operators.sinks import CollectOperator, PrintOperator
from headrace.operators.sources import SourceReaderOperator, TimestampsAndWatermarksOperator
from headrace.operators.windowing.aggregate_operator import WindowAggregateOperator
from headrace.operators.windowing.window_operator import WindowOperator

_OPERATORS: Final[dict[str, Callable[[Any], Operator]]] = {
    specs.MapSpec.kind: MapOperator,
    specs.FlatMapSpec.kind: FlatMapOperator,
    specs.FilterSpec.kind: FilterOperator,
    specs.MapBatchesSpec.kind: MapBatchesOperator,
    specs.FilterExpressionSpec.kind: FilterExpressionOperator,
    specs.SelectExpressionsSpec.kind: SelectExpressionsOperator,
    specs.ProjectSpec.kind: ProjectOperator,
    specs.CacheSpec.kind: CacheOperator,
    specs.KeyBySpec.kind: KeyByOperator,
    specs.KeyedValuesSpec.kind: KeyedValuesOperator,
    specs.TimestampsAndWatermarksSpec.kind: TimestampsAndWatermarksOperator,
    specs.ProcessSpec.kind: ProcessOperator,
    specs.KeyedProcessSpec.kind: KeyedProcessOperator,
    specs.CoMapSpec.kind: CoMapOperator,
    specs.CoFlatMapSpec.kind: CoFlatMapOperator,
    specs.CoProcessSpec.kind: CoProcessOperator,
    specs.KeyedCoProcessSpec.kind: KeyedCoProcessOperator,
    specs.BroadcastProcessSpec.kind: BroadcastProcessOperator,
    specs.KeyedBroadcastProcessSpec.kind: KeyedBroadcastProcessOperator,
    specs.AsyncWaitSpec.kind: AsyncWaitOperator,
    specs.ReduceSpec.kind: ReduceOperator,
    specs.RollingAggregationSpec.kind: RollingAggregationOperator,
    window_specs.WindowSpec.kind: WindowOperator,
    window_specs.WindowAggregateSpec.kind: WindowAggregateOperator,
    columnar_specs.ExtremeRowsSpec.kind: WindowRowsOperator,
    columnar_specs.LocalExtremeRowsSpec.kind: LocalWindowRowsOperator,
    columnar_specs.RankedRowsSpec.kind: WindowRowsOperator,
    columnar_specs.LocalRankedRowsSpec.kind: LocalWindowRowsOperator,
    columnar_specs.RowJoinSpec.kind: RowJoinOperator,
    columnar_specs.WindowRowJoinSpec.kind: WindowRowJoinOperator,
    columnar_specs.SessionAggregateSpec.kind: SessionAggregateOperator,
    columnar_specs.LocalSessionAggregateSpec.kind: LocalSessionAggregateOperator,
    columnar_specs.LocalAggregateSpec.kind: LocalAggregateOperator,
    columnar_specs.SlicedAggregateSpec.kind: SlicedAggregateOperator,
    window_specs.CoGroupSpec.kind: CoGroupOperator,
    window_specs.WindowJoinSpec.kind: WindowJoinOperator,
    window_specs.IntervalJoinSpec.kind: IntervalJoinOperator,
    specs.SourceSpec.kind: SourceReaderOperator,
    specs.SinkSpec.kind: SinkWriterOperator,
    specs.PrintSinkSpec.kind: PrintOperator,
    specs.CollectSinkSpec.kind: CollectOperator,
}


def operator_kinds() -> frozenset[str]:
    """Return the kinds of all specs that have an operator."""
    return frozenset(_OPERATORS)


def operator_class(kind: str) -> Callable[[Any], Operator]:
    """Return what makes the operator of a kind, one of `operator_kinds`, of its spec."""
    assert kind in _OPERATORS, f"no operator for kind {kind}"
    return _OPERATORS[kind]


def create_operator(spec: OperatorSpec) -> Operator:
    """Return a fresh operator for `spec`, not opened."""
    return operator_class(spec.kind)(spec)
