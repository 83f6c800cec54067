"""Emission of user code's results: Python values become batches of the declared types, for main and side outputs.

`RowEmitter` makes the batches, and `ResultCollector` gathers results until there are enough for one. A batch is
converted as a whole, and an error does not show which record was wrong; functions that can skip single records
use `ResultChecks`, which checks the results of one record before they join the others.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import compress, groupby, repeat
from types import GeneratorType
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.operator_spec import OperatorTypes
from headrace.core.record_batch import BatchType, RecordBatch, Timestamps
from headrace.core.types.record_copies import (
    RecordCopies,
    are_unchanging,
    is_unchanging_type,
    private_copy,
)
from headrace.core.types.round_trip_normalizer import plain_rows_of
from headrace.core.types.type_info import (
    BasicType,
    BasicTypeInfo,
    PickledBytesTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from headrace.functions.process import OutputTag
from headrace.graph.pipeline_options import OBJECT_REUSE
from headrace.operators.runtime.operator import OperatorContext, Output
from headrace.operators.runtime.user_code import check_records_fit, is_raised_here, not_iterable
from headrace.state.backend import NO_KEY, EntryScope

EMIT_ROWS_MAX: Final = 8192
"""Limit of results, main and side, that are collected before they are emitted."""
_USUAL_RESULTS: Final = frozenset({list, tuple, GeneratorType})
"""Classes for which the check whether they are iterable is skipped, as it takes longer than most functions."""
# Values of these classes are unchanged by a conversion to columns and back.
_UNCHANGED_BY_COLUMNS: Final = {
    BasicType.STRING: str,
    BasicType.BOOLEAN: bool,
    BasicType.DOUBLE: float,
}
Fits = Callable[[Any], bool]
_INTEGER_BITS: Final = {
    BasicType.BYTE: 8,
    BasicType.SHORT: 16,
    BasicType.INT: 32,
    BasicType.LONG: 64,
}


class RowEmitter:
    """Makes batches of rows of the operator's output types and emits them.

    Rows of a declared type become columns at once: a row that does not fit is reported as an error of this operator,
    and the next operator sees values of the declared type, chained or not. No columns are made if the next operator
    reads rows and their values would be unchanged by a conversion to columns.

    `copies` and `side_copies` copy a record from user code before user code runs again, as it may change the record.
    """

    def __init__(self, context: OperatorContext) -> None:
        self._types: Final[OperatorTypes] = context.types
        self._operator_name = context.operator_name
        self._as_plain: Final = plain_rows_of(context.types.output.value_type)
        reuses_objects = context.settings.get_option(OBJECT_REUSE)
        self.copies: Final = RecordCopies.of(
            context.types.output.value_type, reuses_objects=reuses_objects
        )
        self.side_copies: Final = {
            tag_id: RecordCopies.of(side_type.value_type, reuses_objects=reuses_objects)
            for tag_id, side_type in context.types.side_outputs.items()
        }

    def emit(self, rows: Sequence[Any], timestamps: Timestamps | None, output: Output) -> None:
        """Emit `rows`, which may be empty, on the main output."""
        if not rows:
            return
        if output.reads_rows and self._as_plain is not None:
            plain = self._as_plain(rows)
            if plain is not None:
                output.emit(RecordBatch.of_rows(self._types.output, plain, timestamps))
                return
        output.emit(self._batch(self._types.output, rows, timestamps))

    def emit_side(
        self, tag_id: str, rows: Sequence[Any], timestamps: Timestamps | None, output: Output
    ) -> None:
        """Emit `rows` on the side output; no effect if nothing reads the tag."""
        side_type = self._types.side_outputs.get(tag_id)
        if rows and side_type is not None:
            output.emit_side(tag_id, self._batch(side_type, rows, timestamps))

    def _batch(
        self, batch_type: BatchType, rows: Sequence[Any], timestamps: Timestamps | None
    ) -> RecordBatch:
        batch = RecordBatch.of_rows(batch_type, rows, timestamps)
        value_type = batch_type.value_type
        if isinstance(value_type, PickledBytesTypeInfo):
            return batch
        check_records_fit(batch, self._operator_name)
        if _are_unchanged(rows, value_type):
            return batch
        return RecordBatch.of_columns(batch_type, batch.columns(), timestamps)


def _are_unchanged(rows: Sequence[Any], value_type: TypeInformation) -> bool:
    if not isinstance(value_type, BasicTypeInfo):
        return False
    plain = _UNCHANGED_BY_COLUMNS.get(value_type.basic_type)
    return plain is not None and set(map(type, rows)) <= {plain, type(None)}


class MovingContext(Protocol):
    """A context that is moved from record to record."""

    current_timestamp: int


class ResultCollector:
    """Collects the results of functions for records, timers and windows, main and side, with their timestamps.

    All results of a record get its timestamp. Results that are `(tag, value)` belong to a side output.
    At most EMIT_ROWS_MAX are held, and each emission checks whether the task must stop, as one record, timer or
    window may give endless results.
    """

    def __init__(self, context: OperatorContext) -> None:
        self._emitter = RowEmitter(context)
        self._unchanging = self._emitter.copies.unchanging
        self._copy = self._emitter.copies.copy
        self._rows: list[Any] = []
        self._timestamps: list[int] = []
        self._sides: dict[str, tuple[list[Any], list[int]]] = {}
        self._side_row_count = 0

    def process_rows(
        self,
        call: Callable[[Any, Any], Any],
        context: MovingContext,
        scope: EntryScope,
        keys: Iterable[Any],
        batch: RecordBatch,
        output: Output,
    ) -> None:
        """Call `call(value, context)` for each row of `batch` under its key of `keys`, and emit the results.

        The hot loop of per-record functions: everything it needs is a local name, and for each record only the key
        and the timestamp of one context object are changed.
        """
        has_timestamps = batch.timestamps is not None
        rows = self._rows
        append, append_timestamp = rows.append, self._timestamps.append
        unchanging, copy, usual = self._unchanging, self._copy, self._emitter.copies.usual
        results: Any = None
        try:
            for key, value, timestamp in zip(keys, batch.rows(), timestamps_of(batch), strict=True):
                scope.entry = key
                context.current_timestamp = timestamp
                results = call(value, context)
                if results is None:
                    continue
                for result in results:
                    cls = type(result)
                    if cls is tuple and len(result) == 2 and isinstance(result[0], OutputTag):
                        self.add_side(result[0].tag_id, result[1], timestamp)
                        if self._side_row_count < EMIT_ROWS_MAX:
                            continue
                    else:
                        if cls is not usual and cls not in unchanging:
                            if cls is tuple:
                                for field in result:
                                    if type(field) not in unchanging:
                                        result = copy(result)
                                        break
                            else:
                                result = copy(result)
                        append(result)
                        append_timestamp(timestamp)
                        if len(rows) < EMIT_ROWS_MAX:
                            continue
                    self.flush(output, has_timestamps)
                    rows = self._rows
                    append, append_timestamp = rows.append, self._timestamps.append
        except TypeError as error:
            if is_raised_here(error) and not isinstance(results, Iterable):
                raise not_iterable(results, call.__name__) from None
            raise
        scope.entry = NO_KEY
        self.flush(output, has_timestamps)

    def process_runs(
        self,
        call: Callable[[Any, Any], Any],
        context: MovingContext,
        scope: EntryScope,
        keys: Iterable[Any],
        batch: RecordBatch,
        output: Output,
    ) -> None:
        """Do the same as `process_rows` for records without timestamps, grouped by key.

        Most functions with timers give no results for most records: for these, the loop is that of `map`.
        """
        context.current_timestamp = MIN_TIMESTAMP
        rows, giver, start = batch.rows(), getattr(call, "__name__", "the function"), 0
        for key, run in groupby(keys):
            end = start + len(list(run))
            scope.entry = key
            for results in map(call, rows[start:end], repeat(context)):
                if results is not None:
                    self.add(results, MIN_TIMESTAMP, output, giver, has_timestamps=False)
            start = end
        scope.entry = NO_KEY
        self.flush(output, has_timestamps=False)

    def add(
        self,
        results: Any,
        timestamp: int,
        output: Output,
        giver: str,
        *,
        has_timestamps: bool = True,
    ) -> None:
        """Add the results (an iterable, or None) of one timer or window, all with `timestamp`.

        `giver`: name of the function in the error for results that are not iterable.
        """
        if results is None:
            return
        if type(results) not in _USUAL_RESULTS and not isinstance(results, Iterable):
            raise not_iterable(results, giver)
        for result in results:
            if type(result) is tuple and len(result) == 2 and isinstance(result[0], OutputTag):
                self.add_side(result[0].tag_id, result[1], timestamp)
            else:
                self._rows.append(
                    result if type(result) in self._unchanging else self._copy(result)
                )
                self._timestamps.append(timestamp)
            if max(len(self._rows), self._side_row_count) >= EMIT_ROWS_MAX:
                self.flush(output, has_timestamps)

    def add_side(self, tag_id: str, value: Any, timestamp: int) -> None:
        """Add one result of a side output; if nothing reads the tag it is only counted, as there may be no end."""
        self._side_row_count += 1
        copies = self._emitter.side_copies.get(tag_id)
        if copies is None:
            return
        rows, timestamps = self._sides.setdefault(tag_id, ([], []))
        rows.append(value if type(value) in copies.unchanging else copies.copy(value))
        timestamps.append(timestamp)

    def flush(self, output: Output, has_timestamps: bool = True) -> None:
        """Emit all collected results, side outputs last; raises if the task must stop."""
        output.check_interrupted()
        if self._rows:
            rows, timestamps = self._rows, self._timestamps
            self._rows, self._timestamps = [], []
            self._emitter.emit(rows, _as_timestamps(timestamps, has_timestamps), output)
        self._side_row_count = 0
        if self._sides:
            sides, self._sides = self._sides, {}
            for tag_id, (rows, timestamps) in sides.items():
                self._emitter.emit_side(
                    tag_id, rows, _as_timestamps(timestamps, has_timestamps), output
                )


def _as_timestamps(timestamps: list[int], has_timestamps: bool) -> Timestamps | None:
    return np.array(timestamps, dtype=np.int64) if has_timestamps else None


def timestamps_of(batch: RecordBatch) -> list[int]:
    """Return each row's timestamp as a Python int, MIN_TIMESTAMP if the stream has none."""
    if batch.timestamps is None:
        return [MIN_TIMESTAMP] * batch.num_rows
    return batch.timestamps.tolist()


def keep_rows(
    batch: RecordBatch,
    mask: npt.NDArray[np.bool_],
    batch_type: BatchType,
    *,
    reuses_objects: bool,
) -> RecordBatch:
    """Return the rows where `mask` (bool, shape (num_rows,)) holds, without keys; existing rows and columns are kept.

    Unless `reuses_objects`, mutable rows are not those of `batch`, which a function has seen and may
    have kept: they are read from the columns again if the type is declared, or copied.
    """
    columns = batch.columns().filter(mask) if batch.is_columnar else None
    rows: list[Any] | None = list(compress(batch.rows(), mask.tolist()))
    if not reuses_objects and not is_unchanging_type(batch_type.value_type):
        if not isinstance(batch_type.value_type, PickledBytesTypeInfo) and columns is not None:
            rows = None
        elif not are_unchanging(rows):
            rows, columns = list(map(private_copy, rows)), None
    timestamps = None if batch.timestamps is None else batch.timestamps[mask]
    return RecordBatch(
        batch_type, int(mask.sum()), columns=columns, rows=rows, timestamps=timestamps
    )


class ResultChecks:
    """Checks the results of one record: RecordTypeError, or an error of pickling, if one does not fit."""

    def __init__(self, types: OperatorTypes) -> None:
        self._main: Final = _check_of(types.output)
        self._sides: Final = {
            tag_id: _check_of(side_type) for tag_id, side_type in types.side_outputs.items()
        }

    def __call__(self, results: Iterable[Any]) -> None:
        """Check main results, and those of side outputs that are read."""
        for result in results:
            if type(result) is tuple and len(result) == 2 and isinstance(result[0], OutputTag):
                check_side = self._sides.get(result[0].tag_id)
                if check_side is not None:
                    check_side(result[1])
            else:
                self._main(result)


def _check_of(batch_type: BatchType) -> Callable[[Any], None]:
    """Return a check of one value: a quick test, then if needed a conversion to columns, which decides."""
    if isinstance(batch_type.value_type, PickledBytesTypeInfo):
        return lambda value: None
    fits = _fits_at_a_glance(batch_type.value_type)

    def check(value: Any) -> None:
        if not fits(value):
            RecordBatch.of_rows(batch_type, (value,)).columns()

    return check


def _fits_at_a_glance(type_info: TypeInformation) -> Fits:
    """Return a quick test that is true for common values of the type, and never for a value that does not fit."""
    if isinstance(type_info, TupleTypeInfo):
        tests = tuple(map(_fits_at_a_glance, type_info.field_types))
        return lambda value: (
            type(value) is tuple
            and len(value) == len(tests)
            and all(test(field) for test, field in zip(tests, value, strict=True))
        )
    if not isinstance(type_info, BasicTypeInfo):
        return lambda value: False
    basic_type = type_info.basic_type
    bits = _INTEGER_BITS.get(basic_type)
    if bits is not None:
        limit = 1 << (bits - 1)
        return lambda value: type(value) is int and -limit <= value < limit
    if basic_type is BasicType.STRING:
        # Half a surrogate pair is a str but not UTF-8.
        return lambda value: type(value) is str and value.isascii()
    kind = {BasicType.DOUBLE: float, BasicType.BOOLEAN: bool}.get(basic_type)
    return lambda value: type(value) is kind
