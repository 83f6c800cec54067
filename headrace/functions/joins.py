"""Functions over two joined streams: they receive pairs of records of a window or interval, or both sides of a window.

A plain callable with the same arguments may be passed instead of a JoinFunction or CoGroupFunction.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from headrace.functions.record import Function

IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")


class JoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Computes one result for each pair of records."""

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> OUT:
        """Return the result of a pair."""


class FlatJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Computes any number of results for each pair of records."""

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> Iterable[OUT] | None:
        """Return or yield the results of a pair; None for none."""


class CoGroupFunction(Function, Generic[IN1, IN2, OUT]):
    """Receives both streams' records of a key and window at once; either side may be empty, as in outer joins."""

    @abstractmethod
    def co_group(self, first: Iterable[IN1], second: Iterable[IN2]) -> Iterable[OUT] | None:
        """Return or yield the results."""


class JoinContext(ABC):
    """The times of a pair, epoch ms."""

    @abstractmethod
    def get_left_timestamp(self) -> int: ...

    @abstractmethod
    def get_right_timestamp(self) -> int: ...

    @abstractmethod
    def get_timestamp(self) -> int:
        """Return the later of the two timestamps, which results get."""


class ProcessJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Receives each pair of an interval join."""

    Context = JoinContext

    @abstractmethod
    def process_element(self, left: IN1, right: IN2, ctx: JoinContext) -> Iterable[OUT] | None:
        """Return or yield the results of a pair; `(tag, value)` with an OutputTag goes to that side output."""


class TaggedUnion:
    """A record in a window over two streams, with its stream, as triggers and evictors see it."""

    __slots__ = ("_is_one", "_value")

    def __init__(self, value: Any, is_one: bool) -> None:
        self._value = value
        self._is_one = is_one

    @staticmethod
    def one(value: Any) -> "TaggedUnion":
        return TaggedUnion(value, True)

    @staticmethod
    def two(value: Any) -> "TaggedUnion":
        return TaggedUnion(value, False)

    def is_one(self) -> bool:
        """Return whether the record belongs to the first stream."""
        return self._is_one

    def is_two(self) -> bool:
        """Return whether the record belongs to the second stream."""
        return not self._is_one

    def get_one(self) -> Any:
        """Return the record if it belongs to the first stream, else None."""
        return self._value if self._is_one else None

    def get_two(self) -> Any:
        """Return the record if it belongs to the second stream, else None."""
        return None if self._is_one else self._value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TaggedUnion)
            and self._is_one == other._is_one
            and self._value == other._value
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return TaggedUnion, (self._value, self._is_one)

    def __repr__(self) -> str:
        return f"TaggedUnion.{'one' if self._is_one else 'two'}({self._value!r})"
