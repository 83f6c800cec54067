"""Operators on columns: map_batches, filters and projections by expression, fields by position, cached streams."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import USER_EXCEPTIONS, RecordTypeError
from headrace.core.record_batch import RecordBatch
from headrace.core.types.arrow_types import cast_column, data_schema
from headrace.functions.specs.operator_specs import (
    CacheSpec,
    FilterExpressionSpec,
    MapBatchesSpec,
    ProjectSpec,
    SelectExpressionsSpec,
)
from headrace.operators.runtime.operator import OneInputOperator, OperatorContext, Output
from headrace.operators.runtime.user_code import FunctionOperator, method_of, user_error


class MapBatchesOperator(FunctionOperator, OneInputOperator):
    """Calls the function with the data columns of each batch; it returns columns of the output type's schema.

    If the number of rows stays the same, rows keep their timestamps; otherwise they lose them.
    """

    is_per_record = False

    def __init__(self, spec: MapBatchesSpec) -> None:
        super().__init__(spec)
        self._call = method_of(spec.function, "map_batches")

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._open_function(None)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        try:
            made = self._as_columns(self._call(batch.columns()))
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        timestamps = batch.timestamps if made.num_rows == batch.num_rows else None
        if made.num_rows:
            output.emit(RecordBatch.of_columns(self.context.types.output, made, timestamps))

    def _as_columns(self, made: Any) -> pa.RecordBatch:
        value_type = self.context.types.output.value_type
        if not isinstance(made, pa.RecordBatch):
            raise RecordTypeError(
                made,
                str(value_type),
                f"map_batches must return a pyarrow.RecordBatch, not {type(made).__name__}",
            )
        return fit_columns(made, data_schema(value_type), str(value_type))


class FilterExpressionOperator(OneInputOperator):
    """Keeps the rows for which a pyarrow expression over the data columns is true (not false, not null)."""

    def __init__(self, spec: FilterExpressionSpec) -> None:
        self._expression = spec.expression

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        try:
            (column,) = evaluate(batch.columns(), [self._expression])
            mask = column.fill_null(False)
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        kept: npt.NDArray[np.bool_] = mask.to_numpy(zero_copy_only=False)
        output.emit(batch.without_keys().filter(kept))


class CacheOperator(OneInputOperator):
    """Emits every batch unchanged: the rows of a cached stream, read where an earlier task stored them."""

    def __init__(self, spec: CacheSpec) -> None:
        pass

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        output.emit(batch)


class SelectExpressionsOperator(OneInputOperator):
    """Computes each output column by a pyarrow expression over the data columns. Rows and timestamps are kept.

    If all expressions are unchanged columns, perhaps renamed, nothing is computed: an Acero plan would take
    a quarter of a millisecond for each batch.
    """

    def __init__(self, spec: SelectExpressionsSpec) -> None:
        self._names = [name for name, _ in spec.expressions]
        self._expressions = [expression for _, expression in spec.expressions]

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        known = data_schema(context.types.inputs[0].value_type).names
        found = [_plain_column(expression, known) for expression in self._expressions]
        picked = [name for name in found if name is not None]
        self._picked = picked if len(picked) == len(found) else None

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        output_type = self.context.types.output
        columns = batch.columns()
        try:
            if self._picked is None:
                arrays = evaluate(columns, self._expressions)
            else:
                arrays = [columns.column(name) for name in self._picked]
            made = pa.RecordBatch.from_arrays(arrays, names=self._names)
            fitted = fit_columns(
                made, data_schema(output_type.value_type), str(output_type.value_type)
            )
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        output.emit(RecordBatch.of_columns(output_type, fitted, batch.timestamps))


class ProjectOperator(OneInputOperator):
    """Keeps the tuple fields at the given positions, in that order."""

    def __init__(self, spec: ProjectSpec) -> None:
        self._indexes = list(spec.field_indexes)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        output_type = self.context.types.output
        columns = batch.columns()
        made = pa.RecordBatch.from_arrays(
            [columns.column(index) for index in self._indexes],
            schema=data_schema(output_type.value_type),
        )
        output.emit(RecordBatch.of_columns(output_type, made, batch.timestamps))


def evaluate(columns: pa.RecordBatch, expressions: Sequence[Any]) -> list[pa.Array]:
    """Return one array of shape (num_rows,) per pyarrow expression.

    One Acero projection on this thread: a quarter of the cost of a dataset scanner or `Table.filter` at 4,096 rows.
    """
    # Imported here, because it imports pandas if that is installed: a quarter of a second for every TaskManager.
    import pyarrow.acero as acero

    names = [str(index) for index in range(len(expressions))]
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration(
                "table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([columns]))
            ),
            acero.Declaration("project", acero.ProjectNodeOptions(list(expressions), names)),
        ]
    )
    table = plan.to_table(use_threads=False)
    return [_one_array(column) for column in table.columns]


def _plain_column(expression: Any, names: Sequence[str]) -> str | None:
    """Return the column of `names` that an expression selects unchanged; None if it is another expression."""
    return next((name for name in names if expression.equals(pc.field(name))), None)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def fit_columns(made: pa.RecordBatch, schema: pa.Schema, type_text: str) -> pa.RecordBatch:
    """Return `made` with the columns of `schema`, by name and cast if needed; RecordTypeError if that is impossible."""
    if made.schema.equals(schema):
        return made
    arrays: list[pa.Array] = []
    for field in schema:
        index = made.schema.get_field_index(field.name)
        if index < 0:
            raise RecordTypeError(
                made.schema.names, type_text, f"there is no column '{field.name}'"
            )
        column = made.column(index)
        try:
            arrays.append(cast_column(column, field.type))
        except pa.ArrowException as error:
            reason = (
                f"column '{field.name}' is {column.type} and cannot become {field.type}: {error}"
            )
            raise RecordTypeError(made.schema.names, type_text, reason) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
