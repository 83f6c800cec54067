"""A sink's writers and committer, driven as a job drives them, with crashes wherever they may come.

Subtasks read numbered rows; a checkpoint holds how far each has come and what is prepared. What a crash takes away is
all that was not published; what was published is committed again, with the same keys, until it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.checkpoint.options import INTERVAL
from headrace.checkpoint.storage.metadata_key import MetadataKey
from headrace.core.config import Settings
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId, JobId, JobVertexId
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import TypeInformation
from headrace.functions.sink import (
    FINAL_CHECKPOINT,
    Committer,
    KnowsCommits,
    Sink,
    SinkWriter,
    commit_key,
    scope_of,
)
from tests.unit.connectors.connector_contexts import ConnectorContext

KEY = MetadataKey(bytes(range(32)))
WITH_CHECKPOINTS = Settings({INTERVAL.key: "1 s"})
JOB = JobId(bytes(range(16)))
VERTEX = JobVertexId(bytes(range(16, 32)))


def key() -> MetadataKey:
    """The user's key, as committers ask for it."""
    return KEY


class Crash(Exception):
    """The process that commits is gone."""


@dataclass
class Published:
    """A checkpoint's metadata. `pending`: committables by the id under which they are committed."""

    positions: list[int]
    pending: dict[int, list[bytes]]
    states: list[Sequence[bytes]]


@dataclass
class SinkWorld:
    """`row_of(subtask, number)` is what the source of a subtask has at a position."""

    sink: Sink
    value_type: TypeInformation
    new_committer: Callable[[], Committer]
    row_of: Callable[[int, int], Any]
    parallelism: int = 2
    next_id: int = 1
    attempt: int = 0
    writers: list[SinkWriter] = field(default_factory=list[SinkWriter])
    undecided: list[list[bytes]] = field(default_factory=list[list[bytes]])
    positions: list[int] = field(default_factory=list[int])
    latest: Published | None = None
    published_id: int = 0
    lineage: str = "lineage"
    settings: Settings = field(default_factory=lambda: WITH_CHECKPOINTS)

    def __post_init__(self) -> None:
        self.committer = self.new_committer()
        self.start()

    def start(self) -> None:
        """Make the writers of a new attempt, from the latest checkpoint."""
        vertices = [ExecutionVertexId(VERTEX, index) for index in range(self.parallelism)]
        self.writers = [
            self.sink.create_writer(
                ConnectorContext(
                    self.value_type,
                    subtask_index=index,
                    parallelism=self.parallelism,
                    settings=self.settings,
                    attempt_id=ExecutionAttemptId(JOB, vertex, self.attempt),
                )
            )
            for index, vertex in enumerate(vertices)
        ]
        self.undecided = [[] for _ in self.writers]
        latest = self.latest
        self.positions = list(latest.positions) if latest else [0] * self.parallelism
        if latest:
            for writer, state in zip(self.writers, latest.states, strict=True):
                if state:
                    writer.restore_state(state)

    def write(self, subtask: int, count: int) -> None:
        """Let a subtask write its next rows."""
        first = self.positions[subtask]
        rows = [self.row_of(subtask, number) for number in range(first, first + count)]
        self.writers[subtask].write_batch(RecordBatch.of_rows(BatchType(self.value_type), rows))
        self.positions[subtask] += count

    def prepare(self, checkpoint_id: int) -> list[bytes]:
        """Let every subtask take its part; returns all that is undecided."""
        for writer, undecided in zip(self.writers, self.undecided, strict=True):
            writer.flush(checkpoint_id == FINAL_CHECKPOINT)
            undecided += writer.prepare_commit(checkpoint_id)
        return [content for undecided in self.undecided for content in undecided]

    def abort(self) -> None:
        """A checkpoint that every subtask took part in comes to nothing; the tasks may not even hear of it."""
        self.prepare(self._take_id())

    def publish(self, *, is_final: bool = False) -> int:
        """Take a checkpoint up to where it can no longer be undone; returns its id."""
        checkpoint_id = self._take_id()
        prepared = self.prepare(FINAL_CHECKPOINT if is_final else checkpoint_id)
        pending = dict(self.latest.pending) if self.latest else {}
        known = {content for contents in pending.values() for content in contents}
        new = [content for content in prepared if content not in known]
        states = [writer.snapshot_state(checkpoint_id) for writer in self.writers]
        self.published_id = checkpoint_id
        self.latest = Published(list(self.positions), {**pending, checkpoint_id: new}, states)
        return checkpoint_id

    def commit(self) -> None:
        """Commit whatever is published and not known to be committed, in order, and tell the tasks."""
        assert self.latest is not None
        for checkpoint_id, contents in sorted(self.latest.pending.items()):
            key = commit_key(self.lineage, "sink", checkpoint_id)
            self.committer.commit(key, checkpoint_id, contents)
        decided = {one for contents in self.latest.pending.values() for one in contents}
        self.undecided = [
            [one for one in undecided if one not in decided] for undecided in self.undecided
        ]
        self.latest.pending.clear()

    def checkpoint(self) -> None:
        """A checkpoint as it should be."""
        self.publish()
        self.commit()

    def last_committed(self) -> int | None:
        """What the target says that it was given, to a driver that knows nothing."""
        assert isinstance(self.committer, KnowsCommits)
        return self.committer.last_committed(scope_of(commit_key(self.lineage, "sink", 0)))

    def crash(self, *, is_sudden: bool = True) -> None:
        """Kill tasks and driver, or have them fail in order; start again from the latest checkpoint."""
        if not is_sudden:
            for writer in self.writers:
                writer.close()
        self.committer = self.new_committer()
        self.attempt += 1
        self.start()
        if self.latest is not None:
            # A start from the newest checkpoint is never refused.
            assert (self.last_committed() or 0) <= self.published_id
            self.commit()

    def take(self, step: tuple[Any, ...]) -> None:
        """Take a step as strategies draw it; those that only one sink knows are for its own test."""
        match step:
            case ("write", subtask, count):
                self.write(subtask, count)
            case ("checkpoint",):
                self.checkpoint()
            case ("abort",):
                self.abort()
            case ("publish",):
                self.publish()
            case ("crash",):
                self.crash()
            case ("fail",):
                self.crash(is_sudden=False)
            case _:
                raise AssertionError(step)

    def finish(self) -> None:
        """Come to the end of input, with the checkpoint that follows it."""
        self.publish(is_final=True)
        self.commit()
        for writer in self.writers:
            writer.close()
        self.committer.close()

    @property
    def expected(self) -> list[Any]:
        """Every row that was read for good, once."""
        return [
            self.row_of(subtask, number)
            for subtask, position in enumerate(self.positions)
            for number in range(position)
        ]

    def _take_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1


class FailingFileSystem:
    """Passes everything on until the n-th call that changes something, which it does not carry out."""

    CHANGING = ("move", "delete_file", "delete_dir", "create_dir", "open_output_stream")

    def __init__(self, file_system: Any, calls_left: int) -> None:
        self._file_system = file_system
        self._calls_left = calls_left

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._file_system, name)
        if name not in self.CHANGING:
            return method

        def guarded(*args: Any, **kwargs: Any) -> Any:
            if self._calls_left == 0:
                raise Crash
            self._calls_left -= 1
            return method(*args, **kwargs)

        return guarded
