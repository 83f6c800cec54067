"""Sources of generated records: DataGeneratorSource, by a function of their index, and NumberSequenceSource.

DataGeneratorSource may be bounded and may have a rate; NumberSequenceSource emits each integer of a range once.

Source: Flink DataGeneratorSource, NumberSequenceSource.
"""

import math
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.record_batch import RecordBatch
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.functions.sources.number_range_reader import BATCH_ROWS, NumberRangeReader, share_of
from headrace.graph.pipeline_options import runs_in_batch

_ROWS_IN_BATCH: Final = 65_536
"""Rows of a batch of numbers in BATCH mode, in which no checkpoint waits for the end of a batch."""

_NS_PER_S: Final = 1_000_000_000
_NS_PER_MS: Final = 1_000_000
_WAIT_MAX_MS: Final = 3_600_000
_NEVER_MS: Final = sys.maxsize

RowGenerator = Callable[[int], Any]
BatchGenerator = Callable[[npt.NDArray[np.int64]], pa.RecordBatch]


class DataGeneratorSource(Source):
    """Emits `generator(index)` for index 0, 1, 2, …; subtask i of n makes the indexes i, i + n, i + 2n, ….

    `count` is the number of records over all subtasks, None for no end. `rows_per_second`, also over all subtasks,
    spreads them evenly in time; a source that was held back catches up. The generator must be a pure function.
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
        """Make whole batches: the generator receives indexes of shape (num_rows,), and returns the rows' columns."""
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
        return DataGeneratorReader(
            self._generator, self._makes_batches, self._count, self._rows_per_second, context
        )


class IndexSequence(msgspec.Struct, array_like=True):
    """A split, with its position: the indexes `next_index`, `next_index + step`, … are still to come.

    Its reader makes every `step`-th record of the source, and so has that part of its rate.
    """

    next_index: int
    step: int

    @property
    def split_id(self) -> str:
        """Return an id that is unique within the source and independent of the position."""
        return f"records-{self.next_index % self.step}-of-{self.step}"


_SEQUENCE: Final = msgspec.msgpack.Decoder(IndexSequence)


class DataGeneratorReader(SourceReader):
    """Makes the records of one subtask's splits in turn, and waits for a timer if none is due.

    Each split has a watermark of its own, because restored splits may have different positions. The last split keeps
    its watermark to the end of the input. `count` and `rows_per_second` are those of the whole source.
    """

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
        self._count = count
        self._context = context
        self._rows_per_second = rows_per_second
        self._start_ns = context.clock.monotonic_ns()
        own = IndexSequence(context.subtask_index, context.parallelism)
        self._splits: deque[_MadeSplit] = deque([_MadeSplit(own)])
        self._holds_watermark = False
        self._paused: frozenset[str] = frozenset()
        self._wake_ms = _NEVER_MS

    def poll_next(self, output: SourceOutput) -> InputStatus:
        """Emit the due records of the next split that has any, at most one batch."""
        if not self._holds_watermark:
            self._holds_watermark = True
            for split in self._splits:
                output.add_split(split.split_id)
        for _ in range(len(self._splits)):
            split = self._splits.popleft()
            wanted = min(BATCH_ROWS, output.rows_wanted)
            count = min(wanted, self._due_count(split), self._left_count(split))
            if count > 0:
                output.emit(self._make(split.indexes, count), split.split_id)
                split.advance(count)
            if self._left_count(split) > 0:
                self._splits.append(split)
            elif self._splits:
                output.release_split(split.split_id)
            if count > 0:
                break
        if not self._splits:
            return InputStatus.END_OF_INPUT
        if any(self._due_count(split) > 0 for split in self._splits):
            return InputStatus.MORE_AVAILABLE
        self._wake_when_due()
        return InputStatus.NOTHING_AVAILABLE

    def pause_or_resume_splits(self, to_pause: Sequence[str], to_resume: Sequence[str]) -> None:
        self._paused = self._paused.union(to_pause).difference(to_resume)
        self._context.wake()

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        return [msgspec.msgpack.encode(split.indexes) for split in self._splits]

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        """Continue with these splits; records that became due while the job was down are not caught up."""
        self._splits = deque(_MadeSplit(_SEQUENCE.decode(split)) for split in splits)

    def _left_count(self, split: "_MadeSplit") -> int:
        if self._count is None:
            return BATCH_ROWS
        return max(0, -(-(self._count - split.indexes.next_index) // split.indexes.step))

    def _due_count(self, split: "_MadeSplit") -> int:
        if split.split_id in self._paused:
            return 0
        if self._rows_per_second is None:
            return BATCH_ROWS
        elapsed_ns = self._context.clock.monotonic_ns() - self._start_ns
        due = elapsed_ns * self._rows_per_second / split.indexes.step / _NS_PER_S
        return int(due) - split.made_count

    def _wake_when_due(self) -> None:
        """Make the task poll again when the next record is due, with one timer for any number of polls."""
        waits_ms = [self._wait_ms(s) for s in self._splits if s.split_id not in self._paused]
        timers = self._context.timers
        if not waits_ms or (wake_ms := timers.now_ms() + min(waits_ms)) >= self._wake_ms:
            return
        self._wake_ms = wake_ms
        timers.schedule(wake_ms, self._wake)

    def _wake(self, due_ms: int) -> None:
        if due_ms == self._wake_ms:
            self._wake_ms = _NEVER_MS
        self._context.wake()

    def _wait_ms(self, split: "_MadeSplit") -> int:
        """Return the milliseconds until the next record of `split` is due: at least one, at most an hour."""
        assert self._rows_per_second is not None
        due_ns = (split.made_count + 1) * split.indexes.step / self._rows_per_second * _NS_PER_S
        elapsed_ns = self._context.clock.monotonic_ns() - self._start_ns
        return max(1, math.ceil(min((due_ns - elapsed_ns) / _NS_PER_MS, _WAIT_MAX_MS)))

    def _make(self, indexes: IndexSequence, count: int) -> RecordBatch:
        batch_type = self._context.types.output
        first, step = indexes.next_index, indexes.step
        if self._makes_batches:
            numbers = np.arange(first, first + count * step, step, dtype=np.int64)
            return RecordBatch.of_columns(batch_type, self._generator(numbers))
        rows = [self._generator(index) for index in range(first, first + count * step, step)]
        return RecordBatch.of_rows(batch_type, rows)


class _MadeSplit:
    """A split and the number of its records that this reader made."""

    def __init__(self, indexes: IndexSequence) -> None:
        self.indexes = indexes
        self.split_id = indexes.split_id
        self.made_count = 0

    def advance(self, count: int) -> None:
        self.indexes.next_index += count * self.indexes.step
        self.made_count += count


class NumberSequenceSource(Source):
    """Emits `start` to `end`, both inclusive; each subtask emits a range of its own, in order.

    Source: Flink NumberSequenceSource.

    Example:
        >>> NumberSequenceSource(1, 10).share_of(subtask_index=1, parallelism=4)
        range(3, 6)
    """

    def __init__(self, start: int, end: int) -> None:
        if start > end:
            raise ValueError(f"'start' must not be above 'end', but they are {start} and {end}")
        self._start = start
        self._end = end

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return Types.LONG()

    def share_of(self, subtask_index: int, parallelism: int) -> range:
        """Return the numbers of one subtask; together the subtasks cover the sequence once."""
        return share_of(range(self._start, self._end + 1), subtask_index, parallelism)

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        share = self.share_of(context.subtask_index, context.parallelism)
        rows = _ROWS_IN_BATCH if runs_in_batch(context.settings) else BATCH_ROWS
        return NumberSequenceReader(share, context, rows)

    def __repr__(self) -> str:
        return f"NumberSequenceSource({self._start}, {self._end})"


class NumberSequenceReader(NumberRangeReader):
    """Emits the numbers of its ranges."""

    def emit_range(self, numbers: range, split_id: str, output: SourceOutput) -> None:
        values = pa.array(np.arange(numbers.start, numbers.stop, dtype=np.int64))
        columns = pa.RecordBatch.from_arrays([values], names=["value"])
        output.emit(RecordBatch.of_columns(self.context.types.output, columns), split_id)
