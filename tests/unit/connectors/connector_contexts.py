"""Contexts of readers and writers in tests: a manual clock, timers that fire by hand, and a list for the output."""

from collections.abc import Callable
from typing import Any

from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import ExecutionAttemptId, OperatorId
from headrace.core.operator_spec import OperatorTypes
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.source import InputStatus, SourceReader


class HandTimers:
    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.waiting: list[tuple[int, Callable[[int], None]]] = []

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def schedule(self, time_ms: int, callback: Callable[[int], None]) -> None:
        self.waiting.append((time_ms, callback))

    def fire_due(self) -> None:
        due = [one for one in self.waiting if one[0] <= self.now_ms()]
        self.waiting = [one for one in self.waiting if one[0] > self.now_ms()]
        for time_ms, callback in due:
            callback(time_ms)


class ConnectorContext:
    """Implements the SubtaskContext of sources and sinks, with the runtime's timers."""

    operator_id = OperatorId(bytes(16))
    operator_name = "connector"
    ingest = None

    def __init__(
        self,
        value_type: TypeInformation | None = None,
        subtask_index: int = 0,
        parallelism: int = 1,
        clock: ManualClock | None = None,
        settings: Settings | None = None,
        attempt_id: ExecutionAttemptId | None = None,
    ) -> None:
        stream_type = BatchType(value_type or Types.PICKLED_BYTE_ARRAY())
        self.types = OperatorTypes((stream_type,), stream_type)
        self.subtask_index = subtask_index
        self.parallelism = parallelism
        self.clock = clock or ManualClock()
        self.timers = HandTimers(self.clock)
        self.wake_count = 0
        self.settings = settings or Settings()
        self.attempt_id = attempt_id
        self.attempt_number = attempt_id.attempt_number if attempt_id else 0

    def send_event(self, payload: bytes) -> None:
        raise AssertionError("no coordinator here")

    def wake(self) -> None:
        self.wake_count += 1


class Rows:
    """Keeps what a reader emits."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.splits: set[str] = set()

    rows_wanted = 1 << 40

    def emit(self, batch: RecordBatch, split_id: str = "") -> None:
        assert not split_id or split_id in self.splits
        self.batches.append(batch)

    def add_split(self, split_id: str) -> None:
        self.splits.add(split_id)

    def release_split(self, split_id: str) -> None:
        self.splits.remove(split_id)

    @property
    def values(self) -> list[Any]:
        return [row for batch in self.batches for row in batch.rows()]


def read_all(reader: SourceReader) -> list[Any]:
    output = Rows()
    reader.start()
    for _ in range(10_000):
        if reader.poll_next(output) is InputStatus.END_OF_INPUT:
            reader.close()
            return output.values
    raise AssertionError("the reader does not end")
