"""DataGeneratorSource: records that a function makes of their index, without an end or with, at a rate if wanted."""

from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.record_batch import RecordBatch
from headrace.core.types.type_info import TypeInformation
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.functions.subtask_context import SubtaskContext

BATCH_ROWS: Final = 4096
_NS_PER_S: Final = 1_000_000_000

RowGenerator = Callable[[int], Any]
BatchGenerator = Callable[[npt.NDArray[np.int64]], pa.RecordBatch]


class DataGeneratorSource(Source):
    """Emits `generator(index)` for index 0, 1, 2, …; subtask i of n makes the indexes i, i + n, i + 2n, ….

    `count` is how many records there are over all subtasks, None for no end. `rows_per_second`, over all subtasks
    too, spreads them evenly in time; a source that was held back catches up. The generator must be a pure function.
    Source: Flink DataGeneratorSource, RateLimiter.

    Example:
        >>> squares = DataGeneratorSource(lambda index: index * index, count=1000)
        >>> squares.boundedness.name
        'BOUNDED'
    """

    def __init__(
        self,
        generator: RowGenerator,
        count: int | None = None,
        type_info: TypeInformation | None = None,
        rows_per_second: float | None = None,
    ) -> None:
        if count is not None and count < 0:
            raise ValueError(f"'count' cannot be negative, but is {count}")
        if rows_per_second is not None and rows_per_second <= 0:
            raise ValueError(f"'rows_per_second' must be above 0, but is {rows_per_second}")
        self._generator: Any = generator
        self._count = count
        self._type = type_info
        self._rows_per_second = rows_per_second
        self._makes_batches = False

    @staticmethod
    def of_batches(
        generator: BatchGenerator,
        type_info: TypeInformation,
        count: int | None = None,
        rows_per_second: float | None = None,
    ) -> "DataGeneratorSource":
        """Make whole batches: the generator gets indexes of shape (num_rows,) and returns the columns of their rows."""
        source = DataGeneratorSource(
            cast(RowGenerator, generator), count, type_info, rows_per_second
        )
        source._makes_batches = True
        return source

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED if self._count is None else Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        rate = self._rows_per_second
        return DataGeneratorReader(
            self._generator,
            self._makes_batches,
            self._count,
            None if rate is None else rate / context.parallelism,
            context,
        )


class DataGeneratorReader(SourceReader):
    """Makes the records of one subtask; between records that are not due yet it waits for a timer."""

    def __init__(
        self,
        generator: Any,
        makes_batches: bool,
        count: int | None,
        rows_per_second: float | None,
        context: SubtaskContext,
    ) -> None:
        self._generator = generator
        self._makes_batches = makes_batches
        self._context = context
        self._rate = rows_per_second
        self._start_ns = context.clock.monotonic_ns()
        self._made = 0
        self._own_count: int | None = None
        if count is not None:
            # Indexes i, i + n, … below count.
            self._own_count = max(0, -(-(count - context.subtask_index) // context.parallelism))

    def poll_next(self, output: SourceOutput) -> InputStatus:
        """Emit what is due, at most one batch."""
        count = min(BATCH_ROWS, self._due_count())
        if self._own_count is not None:
            count = min(count, self._own_count - self._made)
        if count > 0:
            output.emit(self._make(count))
            self._made += count
        if self._own_count is not None and self._made >= self._own_count:
            return InputStatus.END_OF_INPUT
        if self._due_count() > 0:
            return InputStatus.MORE_AVAILABLE
        timers = self._context.timers
        timers.schedule(timers.now_ms() + 1, lambda _: self._context.wake())
        return InputStatus.NOTHING_AVAILABLE

    def _due_count(self) -> int:
        if self._rate is None:
            return BATCH_ROWS
        elapsed_ns = self._context.clock.monotonic_ns() - self._start_ns
        return int(elapsed_ns * self._rate / _NS_PER_S) - self._made

    def _make(self, count: int) -> RecordBatch:
        batch_type = self._context.types.output
        step = self._context.parallelism
        first = self._context.subtask_index + self._made * step
        if self._makes_batches:
            indexes = np.arange(first, first + count * step, step, dtype=np.int64)
            return RecordBatch.of_columns(batch_type, self._generator(indexes))
        rows = [self._generator(index) for index in range(first, first + count * step, step)]
        return RecordBatch.of_rows(batch_type, rows)
