"""NumberSequenceSource: the integers from start to end, each once."""

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from headrace.core.record_batch import RecordBatch
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader

BATCH_ROWS: Final = 4096


class NumberSequenceSource(Source):
    """Emits `start` to `end`, both included; each subtask a range of its own, in order.

    Source: Flink NumberSequenceSource.

    Example:
        >>> NumberSequenceSource(1, 10).share_of(subtask_index=1, parallelism=4)
        range(3, 6)
    """

    def __init__(self, start: int, end: int) -> None:
        if start > end:
            raise ValueError(f"'start' must be <= 'end', but they are {start} and {end}")
        self._start = start
        self._end = end

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return Types.LONG()

    def share_of(self, subtask_index: int, parallelism: int) -> range:
        """Return the numbers of one subtask; the shares of all subtasks tile the sequence."""
        count = self._end - self._start + 1
        return range(
            self._start + count * subtask_index // parallelism,
            self._start + count * (subtask_index + 1) // parallelism,
        )

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        return NumberSequenceReader(
            self.share_of(context.subtask_index, context.parallelism), context
        )

    def __repr__(self) -> str:
        return f"NumberSequenceSource({self._start}, {self._end})"


class NumberRange(msgspec.Struct, frozen=True, array_like=True):
    """A split, with its position: the numbers from `next_number` up to and without `stop` are still to come."""

    next_number: int
    stop: int


_RANGE: Final = msgspec.msgpack.Decoder(NumberRange)


class NumberSequenceReader(SourceReader):
    """Reads its ranges in turns: its share or, restored, whichever were dealt to it.

    Each range is a split with a watermark of its own; the last one keeps it to the end of the input.
    """

    def __init__(self, share: range, context: SubtaskContext) -> None:
        self._ranges = deque([share] if share else [])
        self._context = context
        self._holds_watermark = False
        self._paused: frozenset[str] = frozenset()

    def poll_next(self, output: SourceOutput) -> InputStatus:
        """Emit the next numbers of the next range that is not paused."""
        if not self._holds_watermark:
            self._holds_watermark = True
            for numbers in self._ranges:
                output.add_split(_split_id(numbers))
        for _ in range(len(self._ranges)):
            numbers = self._ranges.popleft()
            if _split_id(numbers) in self._paused:
                self._ranges.append(numbers)
                continue
            count = min(BATCH_ROWS, output.rows_wanted)
            self._emit(numbers[:count], _split_id(numbers), output)
            if rest := numbers[count:]:
                self._ranges.append(rest)
            elif self._ranges:
                output.release_split(_split_id(numbers))
            return InputStatus.MORE_AVAILABLE if self._ranges else InputStatus.END_OF_INPUT
        return InputStatus.NOTHING_AVAILABLE if self._ranges else InputStatus.END_OF_INPUT

    def pause_or_resume_splits(self, to_pause: Sequence[str], to_resume: Sequence[str]) -> None:
        self._paused = self._paused.union(to_pause).difference(to_resume)
        self._context.wake()

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        return [
            msgspec.msgpack.encode(NumberRange(numbers.start, numbers.stop))
            for numbers in self._ranges
        ]

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        restored = [_RANGE.decode(split) for split in splits]
        self._ranges = deque(range(split.next_number, split.stop) for split in restored)

    def _emit(self, numbers: range, split_id: str, output: SourceOutput) -> None:
        values = pa.array(np.arange(numbers.start, numbers.stop, dtype=np.int64))
        columns = pa.RecordBatch.from_arrays([values], names=["value"])
        output.emit(RecordBatch.of_columns(self._context.types.output, columns), split_id)


def _split_id(numbers: range) -> str:
    """Ranges do not overlap, so the end tells them apart, however far they have been read."""
    return f"numbers-up-to-{numbers.stop - 1}"
