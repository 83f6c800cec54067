"""SnapshotWriter and SnapshotReader: interfaces that store and read one subtask's part of a checkpoint, in any storage.

RevocableWriter is the writer of a checkpoint that may be given up meanwhile: its folder is then deleted, but not files
that are written afterwards, so the writer deletes those itself. Nothing else refers to them before their handles are
sent to the coordinator. Source: Flink AsyncCheckpointRunnable.cleanup.
"""

import logging
from typing import Final, Protocol

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.checkpoint.handles import StateFile
from headrace.checkpoint.storage.file_systems import remove_empty_folder, remove_file

_LOG: Final = logging.getLogger(__name__)


class SnapshotWriter(Protocol):
    """Writes the files of one subtask's part of one checkpoint. Any thread may call it."""

    def write(
        self, name: str, content: bytes | memoryview, *, is_shared: bool = False
    ) -> StateFile:
        """Store content and return its handle; small content comes back inside the handle.

        `name`: a readable part of the file's name, which is made unique. Raises CheckpointStorageError.
        """
        ...

    def write_file(self, name: str, path: str, *, is_shared: bool = False) -> StateFile:
        """Store a file of this machine, streamed. CheckpointStorageError."""
        ...


class SnapshotReader(Protocol):
    """Reads files that a SnapshotWriter stored."""

    def read(self, file: StateFile) -> memoryview:
        """Return the content after checking its digest. CheckpointCorruptedError, CheckpointStorageError."""
        ...

    def fetch(self, file: StateFile, path: str) -> None:
        """Copy a file to this machine, streamed, and check its digest. The errors of `read`."""
        ...


class RevocableWriter:
    """A SnapshotWriter that can delete what it wrote. One thread."""

    def __init__(self, writer: SnapshotWriter, folder_uri: str) -> None:
        """`folder_uri`: the checkpoint's own folder; empty if it has none."""
        self._writer: Final = writer
        self._folder_uri: Final = folder_uri
        self._uris: list[str] = []

    def write(
        self, name: str, content: bytes | memoryview, *, is_shared: bool = False
    ) -> StateFile:
        return self._noted(self._writer.write(name, content, is_shared=is_shared))

    def write_file(self, name: str, path: str, *, is_shared: bool = False) -> StateFile:
        return self._noted(self._writer.write_file(name, path, is_shared=is_shared))

    def revoke(self) -> None:
        """Delete every file that was written, and the checkpoint's folder if nothing else is in it.

        Files that cannot be deleted are logged: the next start of the job deletes them.
        """
        if not self._uris:
            return
        try:
            while self._uris:
                remove_file(self._uris[-1])
                self._uris.pop()
            if self._folder_uri:
                # Other writers of this checkpoint create the folder again.
                remove_empty_folder(self._folder_uri)
        except CheckpointStorageError as error:
            _LOG.warning(
                "%d files of a failed checkpoint were not deleted: %s",
                len(self._uris),
                error,
            )

    def _noted(self, file: StateFile) -> StateFile:
        if file.uri:
            self._uris.append(file.uri)
        return file
