"""Functions of one record at a time, or two, without context: map, filter, reduce and similar ones.

A plain callable with the same arguments may be passed instead of one of these classes.
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
        """Prepare the function; called once per subtask before the first record.

        States and metrics are obtained here.
        """

    def close(self) -> None:  # noqa: B027
        """Release resources; called at the end, also after a failure."""


class MapFunction(Function):
    """Computes one result per record."""

    @abstractmethod
    def map(self, value: Any) -> Any:
        """Return the result."""


class CoMapFunction(Function):
    """Computes one result per record of connected streams."""

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """Return the result for a record of the first stream."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """Return the result for a record of the second stream."""


class FlatMapFunction(Function):
    """Computes any number of results per record."""

    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any] | None:
        """Return or yield the results; None for none."""


class CoFlatMapFunction(Function):
    """Computes any number of results per record of connected streams."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any] | None:
        """Return or yield the results for a record of the first stream."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any] | None:
        """Return or yield the results for a record of the second stream."""


class MapPartitionFunction(Function):
    """Computes any number of results from all records of a partition or key."""

    @abstractmethod
    def map_partition(self, values: Iterator[Any]) -> Iterable[Any] | None:
        """Return or yield the results; None for none. `values` can be read only once."""


class MapBatchesFunction(Function):
    """Computes the columns of a batch from those of another."""

    @abstractmethod
    def map_batches(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the result, which must not depend on the number of rows in a batch."""


class Order(enum.Enum):
    """Direction of a sort."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


class FilterFunction(Function):
    """Decides whether a record is kept."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Return whether to keep the record."""


class ReduceFunction(Function):
    """Combines two values into one of their type; must be associative if windows merge."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """Return the combined value; `value1` is the older."""


class AggregateFunction(Function):
    """Folds values into an accumulator and computes a result from it."""

    @abstractmethod
    def create_accumulator(self) -> Any:
        """Return a new accumulator."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """Return the accumulator with the value; the argument may be changed and returned."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """Return the output for an accumulator."""

    @abstractmethod
    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Return the merge of both accumulators; needed if windows merge."""


class KeySelector(Function):
    """Extracts the key of a record."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """Return the key, which must always be the same for the same record."""


class NullByteKeySelector(KeySelector):
    """Gives every record the same key, as windows over a whole stream need."""

    def get_key(self, value: Any) -> int:
        return 0


class Partitioner(Function):
    """Chooses the subtask of a key."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """Return the index, from 0."""
