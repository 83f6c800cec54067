"""NumberRangeReader: base of readers whose input is numbered, so that each subtask reads a range of it.

The shares of all subtasks cover the input once. A range is a split with a watermark of its own; its state is the rest
of the range, from which any subtask can continue.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import InputStatus, SourceOutput, SourceReader

BATCH_ROWS: Final = 4096


class NumberRange(msgspec.Struct, frozen=True, array_like=True):
    """A split, with its position: the numbers from `next_number` up to but excluding `stop` are still to be read."""

    next_number: int
    stop: int


_RANGE: Final = msgspec.msgpack.Decoder(NumberRange)


def share_of(numbers: range, subtask_index: int, parallelism: int) -> range:
    """Return the part of the consecutive `numbers` that one subtask reads."""
    count = len(numbers)
    return numbers[
        count * subtask_index // parallelism : count * (subtask_index + 1) // parallelism
    ]


class NumberRangeReader(SourceReader):
    """Reads its ranges in turn: its share or, after a restore, the ranges assigned to it.

    The last range keeps its watermark to the end of the input.
    """

    def __init__(self, share: range, context: SubtaskContext, batch_rows: int = BATCH_ROWS) -> None:
        self.context = context
        self._batch_rows = batch_rows
        self._ranges = deque([share] if share else [])
        self._holds_watermark = False
        self._paused: frozenset[str] = frozenset()

    @abstractmethod
    def emit_range(self, numbers: range, split_id: str, output: SourceOutput) -> None:
        """Emit the records with these numbers: at least one, at most as many as the output wants."""

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
            count = min(self._batch_rows, output.rows_wanted)
            self.emit_range(numbers[:count], _split_id(numbers), output)
            if rest := numbers[count:]:
                self._ranges.append(rest)
            elif self._ranges:
                output.release_split(_split_id(numbers))
            return InputStatus.MORE_AVAILABLE if self._ranges else InputStatus.END_OF_INPUT
        return InputStatus.NOTHING_AVAILABLE if self._ranges else InputStatus.END_OF_INPUT

    def pause_or_resume_splits(self, to_pause: Sequence[str], to_resume: Sequence[str]) -> None:
        self._paused = self._paused.union(to_pause).difference(to_resume)
        self.context.wake()

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        return [
            msgspec.msgpack.encode(NumberRange(numbers.start, numbers.stop))
            for numbers in self._ranges
        ]

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        restored = [_RANGE.decode(split) for split in splits]
        self._ranges = deque(range(split.next_number, split.stop) for split in restored)


def _split_id(numbers: range) -> str:
    """Return an id made of the range's end, which is unique because ranges do not overlap, at any position."""
    return f"numbers-up-to-{numbers.stop - 1}"
