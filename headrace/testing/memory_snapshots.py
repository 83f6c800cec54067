"""Snapshots of single operators in memory: a writer that keeps contents in handles, and its reader."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from headrace.checkpoint.handles import Committable, OperatorSubtaskState, StateChunk, StateFile
from headrace.core.barriers import CheckpointOptions
from headrace.state.operator_states import OperatorStates
from headrace.state.snapshots import FrozenState


class MemorySnapshots:
    """A SnapshotWriter and SnapshotReader whose files are inside their handles."""

    def write(
        self, name: str, content: bytes | memoryview, *, is_shared: bool = False
    ) -> StateFile:
        held = bytes(content)
        return StateFile("", held, len(held), _digest(held), is_shared)

    def write_file(self, name: str, path: str, *, is_shared: bool = False) -> StateFile:
        return self.write(name, Path(path).read_bytes(), is_shared=is_shared)

    def read(self, file: StateFile) -> memoryview:
        assert _digest(file.content) == file.digest
        return memoryview(file.content)

    def fetch(self, file: StateFile, path: str) -> None:
        Path(path).write_bytes(self.read(file))


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def write_frozen(
    frozen: Iterable[FrozenState], committables: tuple[Committable, ...] = ()
) -> OperatorSubtaskState:
    """Write and discard frozen states, as a task's asynchronous part does."""
    chunks: list[StateChunk] = []
    writer = MemorySnapshots()
    for part in frozen:
        chunks += part.write(writer)
        part.discard()
    return OperatorSubtaskState(tuple(chunks), committables)


def snapshot(
    states: OperatorStates,
    checkpoint_id: int = 1,
    options: CheckpointOptions | None = None,
    committables: tuple[Committable, ...] = (),
) -> OperatorSubtaskState:
    """Take a whole snapshot of an operator's states."""
    frozen = states.freeze(checkpoint_id, options or CheckpointOptions())
    return write_frozen(frozen, committables)
