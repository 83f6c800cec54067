"""Pickles of undeclared values, one `bytes` per value, and of code.

Unpickling runs code. Only this module unpickles, and a lint rule keeps it so: each caller must know who wrote the
bytes. Plain pickle is several times faster than cloudpickle but stores classes by name. Other processes cannot look up
classes of the user's main program and of inner scopes by name, so values of such classes are pickled by cloudpickle.
"""

import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import cloudpickle

PICKLE_PROTOCOL: Final = 5
unpickle_value: Final[Callable[[bytes | bytearray | memoryview], Any]] = pickle.loads
"""Return the value of a pickle, which runs code.

Call it only for pickles of a process of this job, in the task that owns the value, or of a snapshot whose metadata and
digests were verified. This is pickle's own function, without a wrapper, because state calls it for every row.
"""
_MAIN_MODULE: Final = b"__main__"


def pickle_value(value: Any) -> bytes:
    """Return a pickle that every process of the job can read; raises the errors of pickling."""
    try:
        pickled = pickle.dumps(value, PICKLE_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        return pickle_code(value)
    # Searching the bytes costs nanoseconds, walking the value would cost more than pickling it. A text that only
    # happens to contain the name is pickled twice, correctly.
    return pickle_code(value) if _MAIN_MODULE in pickled else pickled


def pickle_values(values: Sequence[Any]) -> list[bytes]:
    """Return one pickle per value."""
    dumps = pickle.dumps
    try:
        pickles = [dumps(value, PICKLE_PROTOCOL) for value in values]
    except Exception:
        return [pickle_value(value) for value in values]
    if any(_MAIN_MODULE in pickled for pickled in pickles):
        return [pickle_value(value) for value in values]
    return pickles


def pickle_without_memory(value: Any) -> bytes:
    """Return a pickle without references to earlier objects: equal values have equal pickles."""
    sink = io.BytesIO()
    pickler = pickle.Pickler(sink, PICKLE_PROTOCOL)
    pickler.fast = True
    try:
        pickler.dump(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        return pickle_value(value)
    pickled = sink.getvalue()
    return pickle_value(value) if _MAIN_MODULE in pickled else pickled


def unpickle_values(pickles: Iterable[bytes]) -> list[Any]:
    """Return the values of pickles made by a process of this job. Call it only in the task that owns the values."""
    loads = unpickle_value
    return [loads(pickled) for pickled in pickles]


def pickle_code(value: Any) -> bytes:
    """Return a pickle that includes the functions and classes of the program itself; raises the errors of pickling."""
    pickled: bytes = cloudpickle.dumps(value, PICKLE_PROTOCOL)
    return pickled
