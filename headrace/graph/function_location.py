"""Finds the source line of a user function and its unpicklable captures, for errors that point into the user's file."""

import functools
import inspect
import linecache
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, Final, cast

from headrace.core.types.pickles import pickle_code

_OWN_PACKAGE: Final = str(Path(__file__).resolve().parents[1]) + "/"
_STANDARD_LIBRARY: Final = sysconfig.get_path("stdlib") + "/"


def pickling_failure(value: object) -> Exception | None:
    """Return the error with which pickling `value` by value fails, or None."""
    try:
        pickle_code(value)
    except Exception as error:  # pickling runs user code: __reduce__, __getstate__
        return error
    return None


def culprit_of(function: object) -> str | None:
    """Name the captured variable or attribute of `function` that cannot be pickled, or None if none is found."""
    for name, value in _captured(function):
        if pickling_failure(value) is not None:
            return f"{name} ({type(value).__name__})"
    return None


def location_of(function: object) -> str:
    """Return `file, line n` of the definition of `function` (a callable, or an instance of a function class)."""
    code_holder = _underlying(function)
    if isinstance(code_holder, FunctionType):
        code = code_holder.__code__
        return f"{code.co_filename}, line {code.co_firstlineno}"
    user_class = code_holder if inspect.isclass(code_holder) else type(code_holder)
    return _class_location(user_class)


def user_location_of(functions: Sequence[object], call_site: str) -> str:
    """Return the location of the first function that the user wrote, or `call_site` if there is none.

    Functions of libraries, such as `len` or a connector's source, say nothing about the program.
    """
    for function in functions:
        if _is_of_library_class(function):
            continue
        location = location_of(function)
        file, _, line = location.rpartition(", line ")
        if file and line.isdigit() and not _is_library(file):
            return location
    return call_site


def _is_of_library_class(function: object) -> bool:
    """Return whether this is an object of a library's class, without reading its file to find the line."""
    code_holder = _underlying(function)
    if isinstance(code_holder, FunctionType):
        return False
    user_class = code_holder if inspect.isclass(code_holder) else type(code_holder)
    file = getattr(sys.modules.get(user_class.__module__), "__file__", None)
    return file is not None and _is_library(file)


def _is_library(file: str) -> bool:
    name = file.replace("\\", "/")
    return (
        name.startswith(_OWN_PACKAGE)
        or name.startswith(_STANDARD_LIBRARY)
        or "/site-packages/" in name
    )


def _underlying(function: object) -> object:
    while True:
        if isinstance(function, functools.partial):
            function = cast("functools.partial[Any]", function).func
        elif isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(function, FunctionType) and hasattr(function, "__wrapped__"):
            function = inspect.unwrap(function)
        else:
            return function


def _class_location(user_class: type) -> str:
    for candidate in user_class.__mro__:
        if candidate.__module__ == "builtins":
            break
        method = _own_method(candidate)
        try:
            file = inspect.getsourcefile(candidate)
        except (OSError, TypeError):  # a class of an interactive session
            file = None
        line = _line_of_class(candidate, file, method) if file else None
        if line is None:
            # A class without source text: its methods know their place.
            if method is None:
                continue
            file, line = method.__code__.co_filename, method.__code__.co_firstlineno
        return f"{file}, line {line}"
    return f"class {user_class.__module__}.{user_class.__qualname__}"


def _own_method(user_class: type) -> FunctionType | None:
    """Return a method that was written in the body of `user_class`, not made by a decorator; None if it has none."""
    inside = f"{user_class.__qualname__}."
    for member in vars(user_class).values():
        if isinstance(member, FunctionType) and member.__code__.co_qualname.startswith(inside):
            return member
    return None


def _line_of_class(user_class: type, file: str, method: FunctionType | None) -> int | None:
    """Return the line of the `class` statement in `file`, the last of that name above `method`, or None.

    `inspect.getsourcelines` would parse the whole file, and CPython 3.11 and 3.12 raise a SystemError there when a
    second thread parses at the same time, for example to format a traceback.
    """
    statement = re.compile(rf"\s*class\s+{re.escape(user_class.__name__)}\b")
    lines = [
        number for number, text in enumerate(linecache.getlines(file), 1) if statement.match(text)
    ]
    if method is not None and method.__code__.co_filename == file:
        lines = [number for number in lines if number <= method.__code__.co_firstlineno]
    return lines[-1] if lines else None


def _captured(function: object) -> Iterator[tuple[str, object]]:
    """Yield name and value of the objects shipped with a function: closure cells, globals, defaults, attributes."""
    if isinstance(function, functools.partial):
        partial = cast("functools.partial[Any]", function)
        yield from ((f"argument {index}", value) for index, value in enumerate(partial.args))
        yield from ((f"argument '{name}'", value) for name, value in partial.keywords.items())
        yield from _captured(partial.func)
    elif isinstance(function, MethodType):
        yield from _captured(function.__self__)
    elif isinstance(function, FunctionType):
        variables = inspect.getclosurevars(function)
        yield from ((f"variable '{name}'", value) for name, value in variables.nonlocals.items())
        # Functions of importable modules travel by name, so only those of the main program take globals along.
        yield from ((f"variable '{name}'", value) for name, value in variables.globals.items())
    elif hasattr(function, "__dict__"):
        yield from ((f"attribute '{name}'", value) for name, value in vars(function).items())
