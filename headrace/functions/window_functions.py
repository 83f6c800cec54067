"""Functions over the contents of a window, with and without key, with and without context."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from headrace.functions.record import Function
from headrace.functions.runtime_context import KeyedStateStore
from headrace.functions.windows import Window

IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W", bound=Window)
W2 = TypeVar("W2", bound=Window)


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Sees all records of a key's window at once."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """Return or yield the results."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Sees all records of a window at once."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """Return or yield the results."""


class PassThroughWindowFunction(WindowFunction[IN, IN, KEY, W]):
    """Gives the records on as they are."""

    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[IN]:
        return inputs


class PassThroughAllWindowFunction(AllWindowFunction[IN, IN, W]):
    """Gives the records on as they are."""

    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[IN]:
        return inputs


class AllWindowContext(ABC, Generic[W2]):
    """The window that fires, and state of the window and beyond."""

    @abstractmethod
    def window(self) -> W2: ...

    @abstractmethod
    def window_state(self) -> KeyedStateStore:
        """State of this key and window; not available where windows merge."""

    @abstractmethod
    def global_state(self) -> KeyedStateStore:
        """State of this key, shared by its windows."""


class KeyedWindowContext(AllWindowContext[W2]):
    """A window context with clocks. Times are epoch ms."""

    @abstractmethod
    def current_processing_time(self) -> int: ...

    @abstractmethod
    def current_watermark(self) -> int: ...


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Sees all records of a key's window at once, with a context."""

    Context = KeyedWindowContext

    @abstractmethod
    def process(
        self, key: KEY, context: KeyedWindowContext[W], elements: Iterable[IN]
    ) -> Iterable[OUT]:
        """Return or yield the results."""

    def clear(self, context: KeyedWindowContext[W]) -> None:
        """Drop the window's own state: the window goes."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Sees all records of a window at once, with a context."""

    Context = AllWindowContext

    @abstractmethod
    def process(self, context: AllWindowContext[W], elements: Iterable[IN]) -> Iterable[OUT]:
        """Return or yield the results."""

    def clear(self, context: AllWindowContext[W]) -> None:
        """Drop the window's own state: the window goes."""
