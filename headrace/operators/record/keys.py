"""Operators that add keys to records and remove them.

Source: Flink KeyGroupStreamPartitioner, which hashes at the exchange; here keys and hashes travel with the rows, so
that they are computed once.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.core.errors import USER_EXCEPTIONS, RecordTypeError
from headrace.core.key_hash import NULL_REASON, InvalidKeyError, hash_array, hash_keys
from headrace.core.record_batch import RecordBatch, key_values_to_array
from headrace.core.types.arrow_types import arrow_type_of, data_schema
from headrace.core.types.rows import row_of
from headrace.core.types.type_info import PickledBytesTypeInfo, TypeInformation
from headrace.functions.specs.operator_specs import KeyBySpec, KeyedValuesSpec
from headrace.operators.runtime.contexts import OperatorRuntimeContext
from headrace.operators.runtime.emission import RowEmitter
from headrace.operators.runtime.operator import OneInputOperator, OperatorContext, Output
from headrace.operators.runtime.user_code import (
    close_function,
    method_of,
    open_function,
    user_error,
)


class KeyByOperator(OneInputOperator):
    """Adds key and key hash to each row, by a selector or by columns."""

    _is_function_open = False

    def __init__(self, spec: KeyBySpec) -> None:
        self._selector = spec.selector
        self._columns = spec.columns
        self._key_type = spec.key_type
        self._get_key: Callable[[Any], Any] = method_of(spec.selector, "get_key")
        self._add_keys = self._by_selector if spec.selector is not None else self._by_columns

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._origin = f"operator '{context.operator_name}'"
        self._is_function_open = True
        open_function(self._selector, OperatorRuntimeContext(context, None), context.operator_name)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        output.emit(self._add_keys(batch))

    def close(self) -> None:
        if self._is_function_open:
            self._is_function_open = False
            close_function(self._selector, self.context.operator_name)

    def _by_selector(self, batch: RecordBatch) -> RecordBatch:
        try:
            get_key = self._get_key
            keys = [get_key(row) for row in batch.rows()]
            if isinstance(self._key_type, PickledBytesTypeInfo):
                return batch.with_keys(self._key_type, hash_keys(keys, self._origin), keys=keys)
            array = key_values_to_array(keys, self._key_type)
            return batch.with_keys(
                self._key_type, hash_array(array, self._origin), keys_array=array
            )
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error

    def _by_columns(self, batch: RecordBatch) -> RecordBatch:
        try:
            array, origin = self._key_column(batch.columns())
            if isinstance(self._key_type, PickledBytesTypeInfo):
                keys = array.to_pylist()
                return batch.with_keys(self._key_type, hash_keys(keys, origin), keys=keys)
            return batch.with_keys(self._key_type, hash_array(array, origin), keys_array=array)
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error

    def _key_column(self, columns: pa.RecordBatch) -> tuple[pa.Array, str]:
        arrays = [columns.column(name) for name in self._columns]
        for name, array in zip(self._columns, arrays, strict=True):
            if array.null_count:
                # Inside composite keys null is hashable; but grouping by a column means grouping by its values.
                raise InvalidKeyError(NULL_REASON, f"column '{name}' ({self._origin})")
        origin = f"column '{', '.join(self._columns)}' ({self._origin})"
        names = data_schema(self._key_type).names
        if len(arrays) == 1 and names == ["value"]:
            return _fit(arrays[0], self._key_type), origin
        struct = pa.StructArray.from_arrays(arrays, names=names)
        return _fit(struct, self._key_type), origin


def _fit(array: pa.Array, key_type: TypeInformation) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    wanted = arrow_type_of(key_type)
    if isinstance(key_type, PickledBytesTypeInfo) or array.type == wanted:
        return array
    try:
        return array.cast(wanted)
    except pa.ArrowException as error:
        raise RecordTypeError(array.type, str(key_type), str(error)) from error


class KeyedValuesOperator(OneInputOperator):
    """Removes the keys; with `with_keys` each row becomes `Row(f0=key, f1=value)`."""

    def __init__(self, spec: KeyedValuesSpec) -> None:
        self._with_keys = spec.with_keys

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._emitter = RowEmitter(context)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        if not self._with_keys:
            output.emit(batch.without_keys())
            return
        names = ("f0", "f1")
        pairs = zip(batch.keys(), batch.rows(), strict=True)
        self._emitter.emit([row_of(names, pair) for pair in pairs], batch.timestamps, output)
