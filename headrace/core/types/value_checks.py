"""The form in which a state keeps values of its declared type: what a snapshot gives back of them, and nothing else.

So a state reads the same whether or not there was a failure since the value was put in. It is asked for every single
value and must cost next to nothing: values of the usual classes are looked at in Python, all others go the way of a
snapshot, into columns and back.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from headrace.core.types.arrow_mapping import kept_value
from headrace.core.types.basic_type_info import PickledBytesTypeInfo, TypeInformation
from headrace.core.types.kept_forms import UNSURE, integer_bounds, keeper_of, unchanged_class
from headrace.core.types.type_info import RowTypeInfo

_NO_BOUNDS: Final = (1, 0)


@dataclass(frozen=True)
class ValueCheck:
    """Values of the classes `fitting` and ints from `lowest` to `highest` are kept as they are: hot paths ask that.

    Of all others `keep(value)` gives the form to be kept, often the value itself, or raises RecordTypeError where the
    value does not fit. None is kept as None.
    """

    fitting: frozenset[type]
    lowest: int
    highest: int
    keep: Callable[[Any], Any]

    @classmethod
    def of(cls, value_type: TypeInformation, *, is_key: bool = False) -> "ValueCheck":
        """Decide by the type what is asked of each value. Snapshots hold the kinds of rows, but not of keys."""
        if isinstance(value_type, PickledBytesTypeInfo):
            return cls(frozenset(), *_NO_BOUNDS, _keep_anything)
        usual = unchanged_class(value_type)
        fitting = frozenset[type]() if usual is None else frozenset((usual,))
        bounds = integer_bounds(value_type) or _NO_BOUNDS
        keeps_row_kind = isinstance(value_type, RowTypeInfo) and not is_key
        keep_usual = keeper_of(value_type, keeps_row_kind=keeps_row_kind)

        def keep(value: Any) -> Any:
            kept = keep_usual(value)
            if kept is not UNSURE:
                return kept
            return kept_value(value, value_type, keeps_row_kind=keeps_row_kind)

        return cls(fitting, *bounds, keep)

    @property
    def keeps_all(self) -> bool:
        """Whether any value is kept as it is: the type is not declared."""
        return self.keep is _keep_anything


def _keep_anything(value: Any) -> Any:
    return value
