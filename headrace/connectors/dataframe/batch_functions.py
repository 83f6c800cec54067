"""Functions that the driver calls with rows as DataFrames, by name, for as long as its process lives.

A job graph carries the name only: nothing of a user's is unpickled beside the JobMaster.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

BatchFunction = Callable[[Any, int], None]
"""Takes a DataFrame and the id of the checkpoint whose rows it has."""


@dataclass
class _Registry:
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    functions: dict[str, BatchFunction] = field(default_factory=dict[str, BatchFunction])


_registry: Final = _Registry()


def register_batch_function(function: BatchFunction) -> str:
    """Return the name under which this process knows the function from now on."""
    function_id = f"batch-function-{next(_registry.numbers)}"
    _registry.functions[function_id] = function
    return function_id


def batch_function(function_id: str) -> BatchFunction | None:
    """Return the function, or None where this process has never heard of it."""
    return _registry.functions.get(function_id)
