"""Policies for a record on which a function raises: fail the job, skip the record, or send it to a side output.

A result that does not fit its declared type counts as an exception of the function. The side output gets the record
together with its error. Results that the function had emitted for it are dropped; changes to state that the function
had made before it raised remain.
"""

import enum
from collections.abc import Callable, Iterable
from typing import Any, Final

from headrace.functions.process import KeyedProcessFunction, OutputTag, ProcessFunction
from headrace.functions.runtime_context import RuntimeContext

NUM_RECORDS_FAILED: Final = "numRecordsFailed"
"""Counter of the records on which the function raised."""


class FailurePolicy(enum.Enum):
    """Policies for records on which a function raises; an OutputTag instead sends them to a side output."""

    FAIL = "FAIL"
    """The job fails, and restarts if its strategy allows it; the default."""
    SKIP = "SKIP"
    """The record is dropped and counted."""


class Guarded:
    """Base: calls `method` of the user's function (or the function itself) for each record.

    `method` also defines the form of the returned results; `tag` is the side output for failed records.
    """

    def __init__(self, function: Any, method: str, tag: OutputTag | None) -> None:
        self.function: Final = function
        self._method = method
        self._tag = tag
        self._call: Callable[..., Any] = function
        self._failed: Any = None
        self._check: Callable[[Iterable[Any]], None] | None = None

    def check_results(self, check: Callable[[Iterable[Any]], None]) -> None:
        """Call `check` with the results of each record; if it raises, the function counts as having raised."""
        if self._method != "filter":  # gives records of its input, which fitted there
            self._check = check

    def open(self, runtime_context: RuntimeContext) -> None:
        """Open the user's function."""
        opened = getattr(self.function, "open", None)
        if opened is not None:
            opened(runtime_context)
        self._failed = runtime_context.get_metrics_group().counter(NUM_RECORDS_FAILED)
        self._call = getattr(self.function, self._method, self.function)

    def close(self) -> None:
        """Close the user's function."""
        closed = getattr(self.function, "close", None)
        if closed is not None:
            closed()

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        """Process one record; return all its results, or the outcome of the policy."""
        try:
            results = self._results(value, ctx)
            if self._check is not None:
                self._check(results)
            return results
        except Exception as error:
            self._failed.inc()
            if self._tag is None:
                return ()
            return ((self._tag, (value, f"{type(error).__name__}: {error}")),)

    def _results(self, value: Any, ctx: Any) -> Iterable[Any]:
        match self._method:
            case "map":
                return (self._call(value),)
            case "filter":
                return (value,) if self._call(value) else ()
            case "flat_map":
                results = self._call(value)
            case _:
                results = self._call(value, ctx)
        # Taken at once: a generator that raises half way gives nothing.
        return () if results is None else list(results)


class GuardedFunction(Guarded, ProcessFunction):
    """Guarded function on streams without keys."""


class GuardedKeyedFunction(Guarded, KeyedProcessFunction):
    """Guarded function on keyed streams; an error in a timer still fails the job."""

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        on_timer = getattr(self.function, "on_timer", None)
        return None if on_timer is None else on_timer(timestamp, ctx)
