"""SnapshotWriter and SnapshotReader: how one subtask's part of a checkpoint is stored and read, wherever it lies."""

from typing import Protocol

from headrace.checkpoint.handles import StateFile


class SnapshotWriter(Protocol):
    """Where the files of one subtask's part of one checkpoint go. Any thread."""

    def write(
        self, name: str, content: bytes | memoryview, *, is_shared: bool = False
    ) -> StateFile:
        """Store content and return its handle; small content comes back inside the handle.

        `name`: a word for people in the file's name, which is unique anyway. CheckpointStorageError.
        """
        ...

    def write_file(self, name: str, path: str, *, is_shared: bool = False) -> StateFile:
        """Store a file of this machine, streamed. CheckpointStorageError."""
        ...


class SnapshotReader(Protocol):
    """Reads what a SnapshotWriter stored."""

    def read(self, file: StateFile) -> memoryview:
        """Return the content, whose digest fits. CheckpointCorruptedError, CheckpointStorageError."""
        ...

    def fetch(self, file: StateFile, path: str) -> None:
        """Bring a file to this machine, streamed; its digest fits. The same errors."""
        ...
