"""Table of the operator class for each kind of operator spec."""

from collections.abc import Callable
from typing import Any, Final

from headrace.core.operator_spec import OperatorSpec
from headrace.functions.specs import columnar_specs, operator_specs
from headrace.operators.columns.batch_functions import (
    CacheOperator,
    FilterExpressionOperator,
    MapBatchesOperator,
    ProjectOperator,
    SelectExpressionsOperator,
)
from headrace.operators.columns.full_partition import (
    FoldPartitionOperator,
    MapPartitionOperator,
    SortPartitionOperator,
)
from headrace.operators.columns.local_aggregate import (
    LocalAggregateOperator,
    LocalSessionAggregateOperator,
)
from headrace.operators.columns.row_join import RowJoinOperator, WindowRowJoinOperator
from headrace.operators.columns.session_aggregate import SessionAggregateOperator
from headrace.operators.columns.sliced_aggregate import SlicedAggregateOperator
from headrace.operators.columns.window_aggregate import WindowAggregateOperator
from headrace.operators.columns.window_rows import LocalWindowRowsOperator, WindowRowsOperator
from headrace.operators.record.async_wait_operator import AsyncWaitOperator
from headrace.operators.record.broadcast import (
    BroadcastProcessOperator,
    KeyedBroadcastProcessOperator,
)
from headrace.operators.record.interval_join import IntervalJoinOperator
from headrace.operators.record.keys import KeyByOperator, KeyedValuesOperator
from headrace.operators.record.process import (
    CoProcessOperator,
    KeyedCoProcessOperator,
    KeyedProcessOperator,
    ProcessOperator,
)
from headrace.operators.record.record import (
    CoFlatMapOperator,
    CoMapOperator,
    FilterOperator,
    FlatMapOperator,
    MapOperator,
)
from headrace.operators.record.reduce import (
    BatchReduceOperator,
    BatchRollingAggregationOperator,
    ReduceOperator,
    RollingAggregationOperator,
)
from headrace.operators.runtime.operator import Operator
from headrace.operators.sources_sinks.sinks import (
    CollectOperator,
    PrintOperator,
    SinkWriterOperator,
)
from headrace.operators.sources_sinks.sources import (
    SourceReaderOperator,
    TimestampsAndWatermarksOperator,
)
from headrace.operators.windowing.window_join import CoGroupOperator, WindowJoinOperator
from headrace.operators.windowing.window_operator import WindowOperator

_OPERATORS: Final[dict[str, Callable[[Any], Operator]]] = {
    operator_specs.MapSpec.kind: MapOperator,
    operator_specs.FlatMapSpec.kind: FlatMapOperator,
    operator_specs.FilterSpec.kind: FilterOperator,
    operator_specs.MapBatchesSpec.kind: MapBatchesOperator,
    operator_specs.FilterExpressionSpec.kind: FilterExpressionOperator,
    operator_specs.SelectExpressionsSpec.kind: SelectExpressionsOperator,
    operator_specs.ProjectSpec.kind: ProjectOperator,
    operator_specs.CacheSpec.kind: CacheOperator,
    operator_specs.KeyBySpec.kind: KeyByOperator,
    operator_specs.KeyedValuesSpec.kind: KeyedValuesOperator,
    operator_specs.TimestampsAndWatermarksSpec.kind: TimestampsAndWatermarksOperator,
    operator_specs.ProcessSpec.kind: ProcessOperator,
    operator_specs.KeyedProcessSpec.kind: KeyedProcessOperator,
    operator_specs.CoMapSpec.kind: CoMapOperator,
    operator_specs.CoFlatMapSpec.kind: CoFlatMapOperator,
    operator_specs.CoProcessSpec.kind: CoProcessOperator,
    operator_specs.KeyedCoProcessSpec.kind: KeyedCoProcessOperator,
    operator_specs.BroadcastProcessSpec.kind: BroadcastProcessOperator,
    operator_specs.KeyedBroadcastProcessSpec.kind: KeyedBroadcastProcessOperator,
    operator_specs.AsyncWaitSpec.kind: AsyncWaitOperator,
    operator_specs.ReduceSpec.kind: ReduceOperator,
    operator_specs.RollingAggregationSpec.kind: RollingAggregationOperator,
    operator_specs.WindowSpec.kind: WindowOperator,
    operator_specs.WindowAggregateSpec.kind: WindowAggregateOperator,
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
    columnar_specs.MapPartitionSpec.kind: MapPartitionOperator,
    columnar_specs.SortPartitionSpec.kind: SortPartitionOperator,
    columnar_specs.FoldPartitionSpec.kind: FoldPartitionOperator,
    operator_specs.CoGroupSpec.kind: CoGroupOperator,
    operator_specs.WindowJoinSpec.kind: WindowJoinOperator,
    operator_specs.IntervalJoinSpec.kind: IntervalJoinOperator,
    operator_specs.SourceSpec.kind: SourceReaderOperator,
    operator_specs.SinkSpec.kind: SinkWriterOperator,
    operator_specs.PrintSinkSpec.kind: PrintOperator,
    operator_specs.CollectSinkSpec.kind: CollectOperator,
}


_BATCH_OPERATORS: Final[dict[str, Callable[[Any], Operator]]] = {
    operator_specs.ReduceSpec.kind: BatchReduceOperator,
    operator_specs.RollingAggregationSpec.kind: BatchRollingAggregationOperator,
}
"""Operators that replace others in BATCH mode."""


def operator_kinds() -> frozenset[str]:
    """Return the kinds of all specs that have an operator."""
    return frozenset(_OPERATORS)


def operator_class(kind: str) -> Callable[[Any], Operator]:
    """Return the function that creates an operator of a kind (one of `operator_kinds`) from its spec."""
    assert kind in _OPERATORS, f"there is no operator of kind {kind}"
    return _OPERATORS[kind]


def create_operator(spec: OperatorSpec) -> Operator:
    """Return a fresh operator for `spec`, not opened."""
    return operator_class(spec.kind)(spec)


def create_batch_operator(spec: OperatorSpec) -> Operator:
    """Return a fresh operator for `spec` in BATCH mode, not opened."""
    special = _BATCH_OPERATORS.get(spec.kind)
    return create_operator(spec) if special is None else special(spec)
