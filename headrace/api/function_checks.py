"""Checks user functions while the program is built, and raises TypeErrors with PyFlink's messages.

`guarded_spec` makes the specs of operators that skip records on which their function raises. `call_site` finds the line
of the user's program that called a stream method; errors of operators without user code name it.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headrace.core.errors import ProgramError, short_repr
from headrace.core.operator_spec import OperatorSpec
from headrace.core.types.arrow_types import type_info_from_schema
from headrace.core.types.type_info import RowTypeInfo, TypeInformation, Types
from headrace.functions.failures import GuardedFunction, GuardedKeyedFunction
from headrace.functions.process import OutputTag
from headrace.functions.record import Function, KeySelector, Partitioner
from headrace.functions.specs.operator_specs import (
    FilterSpec,
    FlatMapSpec,
    FunctionSpec,
    KeyedProcessSpec,
    MapSpec,
    ProcessSpec,
)


def check_collection(collection: object) -> None:
    """Raise TypeError unless `from_collection` can stream the elements of `collection`.

    Tables and mappings are refused, because iterating them gives column names and keys.
    """
    if isinstance(collection, Mapping):
        raise TypeError(
            f"from_collection would read the keys of {_described(collection)}: pass list(d.items()), or list(d) for "
            "the keys"
        )
    if hasattr(collection, "columns") and not isinstance(collection, Sequence):
        raise TypeError(
            f"from_collection would not read the rows of {_described(collection)}: pass it to env.from_dataframe, or "
            "pass a list of rows"
        )
    if not isinstance(collection, Iterable):
        raise TypeError(
            f"from_collection needs a list or another iterable, not {_described(collection)}"
        )


def _described(collection: object) -> str:
    """Describe a collection in an error; for a large one this takes longer than streaming it."""
    return f"{short_repr(collection)} of type {type(collection).__name__}"


def check_function(function: object, function_class: type, allow_callable: bool = True) -> None:
    """Raise TypeError unless `function` is an instance of `function_class` or, where allowed, a callable."""
    if isinstance(function, function_class):
        return
    name = function_class.__name__
    article = "an" if name[0] in "AEIOU" else "a"
    if not allow_callable:
        raise TypeError(f"The input must be {article} {name}, but is {_what(function)}")
    if not _is_plain_callable(function):
        raise TypeError(
            f"The input must be {article} {name} or a callable function, but is {_what(function)}"
        )


def check_co_function(function: object, *function_classes: type) -> None:
    """Raise TypeError unless `function` is one of the two-input classes."""
    if not isinstance(function, function_classes):
        names = " or ".join(one.__name__ for one in function_classes)
        raise TypeError(f"The input function must be a {names}! It is {_what(function)}")


def check_key_selector(selector: object) -> None:
    """Raise TypeError unless `selector` extracts keys."""
    if not isinstance(selector, KeySelector) and not _is_plain_callable(selector):
        raise TypeError(
            "Parameter key_selector should be type of KeySelector or a callable function, "
            f"but is {_what(selector)}"
        )


def check_partitioner(partitioner: object) -> None:
    """Raise TypeError unless `partitioner` chooses subtasks."""
    if not isinstance(partitioner, Partitioner) and not _is_plain_callable(partitioner):
        raise TypeError(
            "Parameter partitioner should be type of Partitioner or a callable function, "
            f"but is {_what(partitioner)}"
        )


def check_position(position: object, purpose: str) -> None:
    """Raise TypeError unless `position` is a field's index or name."""
    if isinstance(position, bool) or not isinstance(position, int | str):
        raise TypeError(
            f"The input must be of int or str type to {purpose}, but is {_what(position)}"
        )


def check_name(name: object, what: str) -> str:
    """Return `name`; TypeError unless it is a text."""
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a str, but is {_what(name)}")
    return name


def resolve_type(
    output_type: "TypeInformation | Sequence[TypeInformation] | pa.Schema | None",
    default: TypeInformation | None = None,
) -> TypeInformation:
    """Return a declared type: a list means the row of those types, a schema the row of its columns.

    None means `default`, or pickled values without a default.
    """
    match output_type:
        case None:
            return Types.PICKLED_BYTE_ARRAY() if default is None else default
        case TypeInformation():
            return output_type
        case pa.Schema():
            return type_info_from_schema(output_type)
        case list() | tuple() if all(isinstance(one, TypeInformation) for one in output_type):
            return RowTypeInfo(output_type)
        case _:
            raise TypeError(
                f"a type must be a TypeInformation (see Types), but is {_what(output_type)}"
            )


def class_name_of(function: Any) -> str:
    """Return a name for plans: that of a plain Python function, and for any other object that of its class."""
    name = type(function).__name__
    return (
        getattr(function, "__name__", name) if callable(function) and name == "function" else name
    )


def _is_plain_callable(function: object) -> bool:
    # `str` and `bool` can be called, but a function class was probably passed without its brackets.
    is_function_class = isinstance(function, type) and issubclass(function, Function)
    return callable(function) and not is_function_class


def _what(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__} itself; pass an instance of it, {value.__name__}(...)"
    return f"{value!r} of type {type(value).__name__}"


_METHODS: Final[dict[type[OperatorSpec], str]] = {
    MapSpec: "map",
    FlatMapSpec: "flat_map",
    FilterSpec: "filter",
    ProcessSpec: "process_element",
    KeyedProcessSpec: "process_element",
}


def guarded_spec(
    spec: OperatorSpec, operator_name: str, tag: OutputTag | None, *, is_keyed: bool
) -> OperatorSpec:
    """Return a spec that skips failing records, or sends them to `tag`. ProgramError for other operators."""
    method = _METHODS.get(type(spec))
    if method is None or not isinstance(spec, FunctionSpec):
        raise ProgramError(
            f"operator '{operator_name}' cannot skip single records: "
            "on_failure is for map, flat_map, filter and process"
        )
    if isinstance(spec.function, GuardedFunction | GuardedKeyedFunction):
        raise ProgramError(f"operator '{operator_name}' already has an on_failure policy")
    if is_keyed:
        return KeyedProcessSpec(GuardedKeyedFunction(spec.function, method, tag))
    return ProcessSpec(GuardedFunction(spec.function, method, tag))


_PACKAGE: Final = str(Path(__file__).resolve().parents[1]) + "/"


def call_site() -> str:
    """Return `file, line n` of the innermost frame outside this package, or an empty string if there is none."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # a traceback would cost far more
    while frame.f_code.co_filename.startswith(_PACKAGE):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}"
