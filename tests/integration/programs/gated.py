"""A source of numbers that the test lets through, so that it knows where a job stands without waiting for time."""

import threading
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from headrace.core.record_batch import RecordBatch
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader

_ROWS_MAX: Final = 20


class Gate:
    """Lets numbers below `limit` through. Readers are in task threads, the test is in its own: hence the lock."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._wakes: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def limit(self) -> int:
        with self._lock:
            return self._limit

    def open_to(self, limit: int) -> None:
        with self._lock:
            self._limit = limit
            wakes = list(self._wakes)
        for wake in wakes:
            wake()

    def tell(self, wake: Callable[[], None]) -> None:
        with self._lock:
            self._wakes.append(wake)


GATES: Final[dict[str, Gate]] = {}


class GatedSource(Source):
    """Subtask i of n emits i, i + n, … below the gate's limit and, where it has a `count`, ends there."""

    def __init__(self, gate: str, count: int | None, rows_max: int = _ROWS_MAX) -> None:
        """`rows_max`: so many rows in a batch."""
        self.gate = gate
        self.count = count
        self.rows_max = rows_max

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED if self.count is None else Boundedness.BOUNDED

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        return _GatedReader(self, context)


class _GatedReader(SourceReader):
    def __init__(self, source: GatedSource, context: SubtaskContext) -> None:
        self._gate = GATES[source.gate]
        self._count = source.count
        self._rows_max = source.rows_max
        self._context = context
        self._splits = [(context.subtask_index, context.parallelism)]
        self._gate.tell(context.wake)

    def poll_next(self, output: SourceOutput) -> InputStatus:
        limit = self._gate.limit if self._count is None else min(self._gate.limit, self._count)
        for position, (first, step) in enumerate(self._splits):
            rows = list(range(first, limit, step)[: self._rows_max])
            if rows:
                self._splits[position] = (rows[-1] + step, step)
                output.emit(RecordBatch.of_rows(self._context.types.output, rows))
                return InputStatus.MORE_AVAILABLE
        if self._count is not None and all(first >= self._count for first, _ in self._splits):
            return InputStatus.END_OF_INPUT
        return InputStatus.NOTHING_AVAILABLE

    def pending_record_count(self) -> int | None:
        if self._count is None:
            return None
        return sum(len(range(first, self._count, step)) for first, step in self._splits)

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        return [msgspec.msgpack.encode(split) for split in self._splits]

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        self._splits = [msgspec.msgpack.decode(split, type=tuple[int, int]) for split in splits]
