"""Pickles of undeclared values: one `bytes` per value.

Plain pickle is several times faster than cloudpickle but stores classes by name. Classes of the user's main program
and of inner scopes have no name that another process can look up, so values of such classes go by cloudpickle.
"""

import pickle
from collections.abc import Iterable, Sequence
from typing import Any, Final

import cloudpickle

PICKLE_PROTOCOL: Final = 5
_MAIN_MODULE: Final = b"__main__"


def pickle_value(value: Any) -> bytes:
    """Return a pickle that every process of the job can read; raises what pickling raises."""
    try:
        pickled = pickle.dumps(value, PICKLE_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        return _cloudpickle_value(value)
    # Searching the bytes costs nanoseconds, walking the value would cost more than pickling it. A text that only
    # happens to contain the name is pickled twice, correctly.
    return _cloudpickle_value(value) if _MAIN_MODULE in pickled else pickled


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


def unpickle_values(pickles: Iterable[bytes]) -> list[Any]:
    """Return the values of pickles made by a process of this job. Only call inside the task that owns them."""
    loads = pickle.loads
    return [loads(pickled) for pickled in pickles]


def _cloudpickle_value(value: Any) -> bytes:
    pickled: bytes = cloudpickle.dumps(value, PICKLE_PROTOCOL)
    return pickled
