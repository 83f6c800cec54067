"""Runs a source as a job would that fails and comes back: whatever happens, every record comes out once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.cluster.job_master.coordinators.source_coordinator import create_source_coordinator
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    JobId,
    JobVertexId,
    OperatorId,
    ResourceId,
)
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.types.type_info import TypeInformation
from headrace.functions.source import InputStatus, Source
from tests.unit.connectors.connector_contexts import ConnectorContext, Rows

POLLS_MAX = 10_000
LOCATION = TaskManagerLocation(ResourceId("worker"), "host", 1, None, "host-id")


@dataclass(frozen=True)
class Life:
    """One attempt of a job: its parallelism, how often each subtask is polled before it dies, who gets which split."""

    parallelism: int
    polls_before_checkpoint: int
    polls_after_checkpoint: int
    owners: Sequence[int]


def lives() -> st.SearchStrategy[list[Life]]:
    """Attempts with changing parallelism; each ends in a failure some polls after its checkpoint."""
    numbers = st.integers(0, 4)
    life = st.builds(
        Life, st.integers(1, 4), numbers, numbers, st.lists(numbers, min_size=1, max_size=5)
    )
    return st.lists(life, min_size=1, max_size=4)


def rows_of(source: Source, attempts: Sequence[Life], value_type: TypeInformation) -> list[Any]:
    """What survives of all attempts, the last of which reads to the end: rows before each checkpoint count."""
    kept: list[Any] = []
    snapshot: Snapshot | None = None
    for number, life in enumerate(attempts, 1):
        job = SourceJob(source, life.parallelism, value_type, snapshot, life.owners)
        job.poll(life.polls_before_checkpoint)
        snapshot = job.checkpoint(number)
        kept += job.rows
        job.poll(life.polls_after_checkpoint)
        job.close()
    job = SourceJob(source, 2, value_type, snapshot, (0, 1))
    job.run_to_end()
    return kept + job.rows


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint's part of a source: of its coordinator, if any, and of its readers."""

    coordinator: bytes | None
    splits: Sequence[bytes]


class SourceJob:
    """The readers of a source, and their coordinator where it has one, in one thread."""

    def __init__(
        self,
        source: Source,
        parallelism: int,
        value_type: TypeInformation,
        snapshot: Snapshot | None = None,
        owners: Sequence[int] = (0,),
        settings: Settings | None = None,
    ) -> None:
        self.clock = ManualClock()
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self.attempts = [
            ExecutionAttemptId(
                JobId(bytes(16)), ExecutionVertexId(JobVertexId(bytes(16)), index), 0
            )
            for index in range(parallelism)
        ]
        self.coordinator = self._create_coordinator(source, parallelism)
        if self.coordinator is not None:
            self.coordinator.reset(None, None if snapshot is None else snapshot.coordinator)
            self.coordinator.start()
        self.outputs = [Rows() for _ in range(parallelism)]
        self.has_ended = [False] * parallelism
        self.contexts = [
            ConnectorContext(value_type, index, parallelism, self.clock, settings=settings)
            for index in range(parallelism)
        ]
        self.readers = [source.create_reader(context) for context in self.contexts]
        for index, reader in enumerate(self.readers):
            self.contexts[index].send_event = self._sender(index)
            if snapshot is not None:
                reader.restore_splits(
                    [
                        split
                        for number, split in enumerate(snapshot.splits)
                        if owners[number % len(owners)] % parallelism == index
                    ]
                )
            reader.start()
            if self.coordinator is not None:
                self.coordinator.subtask_ready(self.attempts[index], LOCATION)

    @property
    def rows(self) -> list[Any]:
        return [row for output in self.outputs for row in output.values]

    def poll(self, count: int = 1) -> None:
        """Poll each reader `count` times; a millisecond passes in between."""
        for _ in range(count):
            for index, reader in enumerate(self.readers):
                if not self.has_ended[index]:
                    status = reader.poll_next(self.outputs[index])
                    self.has_ended[index] = status is InputStatus.END_OF_INPUT
            self.advance(1)

    def advance(self, duration_ms: int) -> None:
        self.clock.advance_ms(duration_ms)
        due = [one for one in self._waiting if one[0] <= self.clock.now_ms()]
        self._waiting = [one for one in self._waiting if one[0] > self.clock.now_ms()]
        for _, action in due:
            action()

    def run_to_end(self) -> None:
        for _ in range(POLLS_MAX):
            if all(self.has_ended):
                self.close()
                return
            self.poll()
        raise AssertionError("the readers do not end")

    def checkpoint(self, checkpoint_id: int) -> Snapshot:
        state = None if self.coordinator is None else self.coordinator.checkpoint(checkpoint_id)
        splits = [
            split
            for index, reader in enumerate(self.readers)
            if not self.has_ended[index]
            for split in reader.snapshot_state(checkpoint_id)
        ]
        return Snapshot(state, splits)

    def close(self) -> None:
        for reader in self.readers:
            reader.close()

    def _create_coordinator(self, source: Source, parallelism: int) -> Any:
        described = source.coordinator()
        if described is None:
            return None
        context = CoordinatorContext(
            JobId(bytes(16)),
            OperatorId(bytes(16)),
            "source",
            parallelism,
            Settings(),
            send_event=lambda index, payload: self.readers[index].handle_event(payload),
            run_async=lambda action: action(),
            fail_job=self._fail,
            later=self,
        )
        return create_source_coordinator(context, described[1])

    def schedule(self, delay_ms: float, action: Callable[[], None], /) -> Any:
        self._waiting.append((self.clock.now_ms() + int(delay_ms), action))

    def call_blocking(
        self, name: str, work: Callable[[], Any], handler: Callable[[Any, Any], None], /
    ) -> None:
        try:
            result = work()
        except Exception as error:
            handler(None, error)
        else:
            handler(result, None)

    def _sender(self, index: int) -> Callable[[bytes], None]:
        def send(payload: bytes) -> None:
            self.coordinator.handle_event(self.attempts[index], payload)

        return send

    def _fail(self, error: BaseException) -> None:
        raise error
