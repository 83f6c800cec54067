"""Whether the results of one record fit the types declared for them, asked before they join those of other records.

Batches are turned into columns as a whole, and then nobody knows any more which record a misfit came from. Functions
that can do without single records are told as soon as the results of one are there.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from headrace.core.operator_types import OperatorTypes
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import (
    BasicType,
    BasicTypeInfo,
    PickledBytesTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from headrace.functions.process import OutputTag

Fits = Callable[[Any], bool]

_INTEGER_BITS: Final = {
    BasicType.BYTE: 8,
    BasicType.SHORT: 16,
    BasicType.INT: 32,
    BasicType.LONG: 64,
}


class ResultChecks:
    """Call it with the results of one record: RecordTypeError, or what pickling raises, where one does not fit."""

    def __init__(self, types: OperatorTypes) -> None:
        self._main: Final = _check_of(types.output)
        self._sides: Final = {
            tag_id: _check_of(side_type) for tag_id, side_type in types.side_outputs.items()
        }

    def __call__(self, results: Iterable[Any]) -> None:
        """Check main results and those of side outputs that somebody reads."""
        for result in results:
            if type(result) is tuple and len(result) == 2 and isinstance(result[0], OutputTag):
                check_side = self._sides.get(result[0].tag_id)
                if check_side is not None:
                    check_side(result[1])
            else:
                self._main(result)


def _check_of(batch_type: BatchType) -> Callable[[Any], None]:
    """Whatever is not seen at a glance to fit is tried: only the columns themselves know all that they take."""
    if isinstance(batch_type.value_type, PickledBytesTypeInfo):
        return lambda value: None
    fits = _fits_at_a_glance(batch_type.value_type)

    def check(value: Any) -> None:
        if not fits(value):
            RecordBatch.of_rows(batch_type, (value,)).columns()

    return check


def _fits_at_a_glance(type_info: TypeInformation) -> Fits:
    """Return a quick test that holds for common values of the type, and for none that does not fit."""
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
        # Half a surrogate pair is a str and no UTF-8.
        return lambda value: type(value) is str and value.isascii()
    kind = {BasicType.DOUBLE: float, BasicType.BOOLEAN: bool}.get(basic_type)
    return lambda value: type(value) is kind
