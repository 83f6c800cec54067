"""Functions that see one record at a time, or two, and keep no context: map, filter, reduce and similar ones.

Wherever one of these classes is taken, a plain callable with the same arguments is taken too.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from headrace.functions.runtime_context import RuntimeContext


class Function(ABC):  # noqa: B024
    """Base of all user functions. They are shipped by value; make connections and locks in `open`."""

    def open(self, runtime_context: "RuntimeContext") -> None:  # noqa: B027
        """Called once per subtask before the first record; states and metrics are obtained here."""

    def close(self) -> None:  # noqa: B027
        """Called at the end, also after a failure."""


class MapFunction(Function):
    """One in, one out."""

    @abstractmethod
    def map(self, value: Any) -> Any:
        """Return the result."""


class CoMapFunction(Function):
    """One in, one out, on connected streams."""

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """Return the result for a record of the first stream."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """Return the result for a record of the second stream."""


class FlatMapFunction(Function):
    """One in, any number out."""

    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any] | None:
        """Return or yield the results; None for none."""


class CoFlatMapFunction(Function):
    """One in, any number out, on connected streams."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any] | None:
        """Return or yield the results for a record of the first stream."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any] | None:
        """Return or yield the results for a record of the second stream."""


class MapPartitionFunction(Function):
    """All records of a partition or key in, any number out."""

    @abstractmethod
    def map_partition(self, values: Iterator[Any]) -> Iterable[Any] | None:
        """Return or yield the results; None for none. `values` can be read once."""


class MapBatchesFunction(Function):
    """The columns of a batch in, those of another one out."""

    @abstractmethod
    def map_batches(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the result, which must not depend on how many rows a batch has."""


class Order(enum.Enum):
    """Direction of a sort."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


class FilterFunction(Function):
    """A predicate."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Return whether to keep the record."""


class ReduceFunction(Function):
    """Combines two values into one of their type; associative where windows merge."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """Return the combined value; `value1` is the older."""


class AggregateFunction(Function):
    """Folds values into an accumulator and makes a result of it."""

    @abstractmethod
    def create_accumulator(self) -> Any:
        """Return a fresh accumulator."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """Return the accumulator with the value; the argument may be changed and returned."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """Return the output for an accumulator."""

    @abstractmethod
    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Return both in one; needed where windows merge."""


class KeySelector(Function):
    """Extracts the key of a record."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """Return the key: the same for the same record, always."""


class NullByteKeySelector(KeySelector):
    """Gives every record the same key, as windows over a whole stream need."""

    def get_key(self, value: Any) -> int:
        return 0


class Partitioner(Function):
    """Chooses the subtask of a key."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """Return the index, from 0."""
