"""Operators over all records of a subtask, or of each key, at the end of the input or, in BATCH mode, of the key.

Results have no timestamps. Source: Flink MapPartitionOperator, SortPartitionOperator, KeyedSortPartitionOperator,
PartitionReduceOperator, PartitionAggregateOperator.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.checkpoint.handles import Committable
from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.errors import USER_EXCEPTIONS, RecordTypeError, short_repr
from headrace.core.record_batch import RecordBatch
from headrace.core.types.arrow_types import data_schema
from headrace.core.types.record_copies import private_copy
from headrace.functions.record import AggregateFunction
from headrace.functions.specs.columnar_specs import (
    FoldPartitionSpec,
    MapPartitionSpec,
    PartitionForm,
    SortPartitionSpec,
)
from headrace.functions.specs.operator_specs import FunctionSpec
from headrace.functions.state import ListStateDescriptor
from headrace.operators.columns.batch_functions import fit_columns
from headrace.operators.columns.partition_rows import (
    COLUMN_PIECE_ROWS,
    PIECE_ROWS,
    PartitionRows,
    RowGroup,
    few_blocks,
    in_hash_order,
    ordered_pieces,
)
from headrace.operators.runtime.emission import EMIT_ROWS_MAX, ResultCollector
from headrace.operators.runtime.operator import OneInputOperator, OperatorContext, Output
from headrace.operators.runtime.user_code import (
    FunctionOperator,
    method_of,
    refuse_generator,
    user_error,
)

_NOTHING: Final = object()
_STATE_NAME: Final = "partition-fold"


class EndOfInputOperator(FunctionOperator, OneInputOperator):
    """Base: emits results when the input ends, followed by the last watermark, so that no result is late."""

    _has_ended_time = False

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        # An idle input does not hold event time back, and may still send more records.
        if timestamp_ms == MAX_WATERMARK:
            self._has_ended_time = True
        else:
            super().process_watermark(timestamp_ms, output)

    def end_input(self, input_number: int, output: Output) -> None:
        self._emit_results(output)
        if self._has_ended_time:
            super().process_watermark(MAX_WATERMARK, output)

    @abstractmethod
    def _emit_results(self, output: Output) -> None:
        """Emit the results of all records that are still held."""


class FullPartitionOperator(EndOfInputOperator):
    """Base: holds rows in columns, and calls `_process` for each partition or key."""

    is_per_record = False
    _piece_rows = PIECE_ROWS

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        batch_type = context.types.inputs[0]
        self._is_keyed = batch_type.key_type is not None
        self._schema = data_schema(batch_type.value_type)
        self._buffer_bytes = context.state.row_buffer_bytes
        self._rows = PartitionRows(batch_type, context.state)
        self._open_function(None)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        self._rows.add(batch)

    def end_keys(self, output: Output) -> None:
        """Pass the keys so far to the function: BATCH mode sorts their rows by hash."""
        if self._is_keyed:
            self._process_keys(self._rows.take(), output)

    def _emit_results(self, output: Output) -> None:
        blocks = few_blocks(self._rows.take(), self._buffer_bytes)
        if self._is_keyed:
            self._process_keys(in_hash_order(blocks), output)
        elif blocks:
            self._process_all(iter([self._rows.group(blocks)]), output)

    def _process_keys(self, blocks: Iterable[pa.RecordBatch], output: Output) -> None:
        self._process_all(self._rows.groups_by_key(blocks, self._piece_rows), output)

    def _process_all(self, groups: Iterator[RowGroup], output: Output) -> None:
        try:
            for group in groups:
                self._process(group, output)
            self._flush(output)
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error

    @abstractmethod
    def _process(self, group: RowGroup, output: Output) -> None:
        """Handle all rows of a partition or key."""

    def _flush(self, output: Output) -> None:
        """Emit results that are held back to be merged."""


class MapPartitionOperator(FullPartitionOperator):
    """Calls a function with an iterator of the records, or with their columns as a table of Arrow or pandas."""

    def __init__(self, spec: MapPartitionSpec) -> None:
        super().__init__(spec)
        self._form = spec.form
        if spec.form is not PartitionForm.RECORDS:
            self._piece_rows = COLUMN_PIECE_ROWS
        self._call = method_of(spec.function, "map_partition")

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._collector = ResultCollector(context)
        self._output_schema = data_schema(context.types.output.value_type)
        self._made: list[pa.RecordBatch] = []
        self._made_count = 0

    def _process(self, group: RowGroup, output: Output) -> None:
        if self._form is PartitionForm.RECORDS:
            results = self._call(group.values())
            self._collector.add(
                results, MIN_TIMESTAMP, output, "map_partition", has_timestamps=False
            )
            return
        table = group.table(self._schema)
        if self._form is PartitionForm.ARROW:
            made = self._of_arrow(self._call(table))
        else:
            made = self._of_pandas(self._call(table.to_pandas(use_threads=False)))
        self._made += made
        self._made_count += sum(one.num_rows for one in made)
        if self._made_count >= EMIT_ROWS_MAX:
            self._flush(output)

    def _flush(self, output: Output) -> None:
        self._collector.flush(output, has_timestamps=False)
        made, self._made, self._made_count = self._made, [], 0
        if made:
            columns = pa.concat_batches(made)
            output.emit(RecordBatch.of_columns(self.context.types.output, columns))

    def _of_arrow(self, made: Any) -> list[pa.RecordBatch]:
        type_text = str(self.context.types.output.value_type)
        if isinstance(made, pa.RecordBatch):
            made = pa.Table.from_batches([made])
        if not isinstance(made, pa.Table):
            raise self._no_table(made, "map_arrow must return a pyarrow.Table or RecordBatch")
        batches = made.to_batches()
        return [fit_columns(batch, self._output_schema, type_text) for batch in batches]

    def _of_pandas(self, made: Any) -> list[pa.RecordBatch]:
        # Loaded by name, as Headrace does not depend on it: users of map_pandas have it.
        if not isinstance(made, import_module("pandas").DataFrame):
            raise self._no_table(made, "map_pandas must return a pandas.DataFrame")
        if not len(made):
            return []
        arrays: list[pa.Array] = []
        for field in self._output_schema:
            if field.name not in made.columns:
                reason = f"there is no column '{field.name}'"
                raise self._misfit(list(made.columns), reason)
            try:
                array = pa.array(made[field.name], field.type, from_pandas=True)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                reason = f"column '{field.name}' cannot become {field.type}: {error}"
                raise self._misfit(list(made.columns), reason) from error
            arrays.append(array)
        return [pa.RecordBatch.from_arrays(arrays, schema=self._output_schema)]

    def _no_table(self, made: Any, rule: str) -> RecordTypeError:
        return self._misfit(short_repr(made), f"{rule}, not {type(made).__name__}")

    def _misfit(self, shown: Any, reason: str) -> RecordTypeError:
        return RecordTypeError(shown, str(self.context.types.output.value_type), reason)


class SortPartitionOperator(FullPartitionOperator):
    """Emits the records sorted by a column, nulls last, or by a selector; equal ones in order of arrival."""

    def __init__(self, spec: SortPartitionSpec) -> None:
        super().__init__(FunctionSpec(spec.selector))
        self._column = spec.column
        self._is_descending = spec.is_descending
        self._key_of = method_of(spec.selector, "get_key")
        if spec.selector is None:
            self._piece_rows = COLUMN_PIECE_ROWS

    def _process(self, group: RowGroup, output: Output) -> None:
        blocks = group.blocks()
        if self._column is None:
            keys = [self._key_of(value) for value in group.values()]
            places = sorted(range(len(keys)), key=keys.__getitem__, reverse=self._is_descending)
            order = np.array(places)
        else:
            column = pa.chunked_array([block.column(self._column) for block in blocks])
            direction = "descending" if self._is_descending else "ascending"
            options = pc.SortOptions(sort_keys=[("by", direction)])
            by_column = pc.call_function(
                "sort_indices", [pa.table([column], names=["by"])], options
            )
            order = by_column.to_numpy().astype(np.int64)
        for piece in ordered_pieces(few_blocks(blocks, self._buffer_bytes), order):
            output.check_interrupted()
            output.emit(RecordBatch.of_columns(self.context.types.output, piece))


class FoldPartitionOperator(EndOfInputOperator):
    """Emits the fold of all records of the subtask; at another parallelism, folds that meet are combined."""

    def __init__(self, spec: FoldPartitionSpec) -> None:
        super().__init__(spec)
        function = spec.function
        self._folded_type = spec.folded_type
        self._is_aggregate = isinstance(function, AggregateFunction)
        self._add = function.add if self._is_aggregate else method_of(function, "reduce")
        self._folded: Any = _NOTHING

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._collector = ResultCollector(context)
        self._state = self._operator_state.get_list_state(
            ListStateDescriptor(_STATE_NAME, self._folded_type)
        )
        self._open_function(None)
        merge = self._function.merge if self._is_aggregate else self._add
        try:
            for folded in self._state.get():
                is_first = self._folded is _NOTHING
                self._folded = folded if is_first else merge(self._folded, folded)
        except USER_EXCEPTIONS as error:
            raise user_error(error, context.operator_name) from error

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        values, folded, add = iter(batch.rows()), self._folded, self._add
        try:
            if self._is_aggregate:
                if folded is _NOTHING:
                    folded = self._function.create_accumulator()
                for value in values:
                    folded = add(value, folded)
            else:
                if folded is _NOTHING:
                    # The function may change it, and others use it too.
                    folded = private_copy(next(values))
                for value in values:
                    folded = add(folded, value)
            refuse_generator(folded, "add" if self._is_aggregate else "reduce")
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        self._folded = folded

    def snapshot_state(self, checkpoint_id: int) -> list[Committable]:
        try:
            self._state.update([] if self._folded is _NOTHING else [self._folded])
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        return []

    def _emit_results(self, output: Output) -> None:
        folded, self._folded = self._folded, _NOTHING
        if folded is _NOTHING:
            return
        try:
            result = self._function.get_result(folded) if self._is_aggregate else folded
            self._collector.add([result], MIN_TIMESTAMP, output, "the fold", has_timestamps=False)
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        self._collector.flush(output, has_timestamps=False)
