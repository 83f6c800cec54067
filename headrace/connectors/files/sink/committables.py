"""Messages from the writers of a file sink to its committer, and the committer's configuration."""

from typing import Any, Final

import msgspec

FILE_COMMITTER: Final = "files"


class PendingFile(msgspec.Struct, frozen=True, tag="file"):
    """A complete file in a staging folder, with its final name. All paths are relative to the sink's folder."""

    folder: str
    name: str
    final_path: str
    size_bytes: int

    @property
    def hidden_path(self) -> str:
        """Return the file's path before its commit."""
        return f"{self.folder}/{self.name}"

    @property
    def bucket(self) -> str:
        """Folder of the final file; empty for the sink's own."""
        return self.final_path.rpartition("/")[0]


class InputEnded(msgspec.Struct, frozen=True, tag="end"):
    """Message that this subtask will write no more; sent only if compaction needs it."""

    subtask_index: int
    parallelism: int


FileCommittable = PendingFile | InputEnded
_DECODER: Final = msgspec.msgpack.Decoder(FileCommittable)


def encode_committable(committable: FileCommittable) -> bytes:
    """Encode a committable as the bytes that a checkpoint keeps."""
    return msgspec.msgpack.encode(committable)


def decode_committable(content: bytes) -> FileCommittable:
    """Decode the bytes of `encode_committable`; msgspec.ValidationError for anything else."""
    return _DECODER.decode(content)


class Compaction(msgspec.Struct, frozen=True):
    """Settings for merging files.

    Files are merged at `size_threshold_bytes` or after `checkpoint_count`, whichever comes first; 0 disables either.
    """

    compactor: str
    delimiter: bytes = b""
    size_threshold_bytes: int = 0
    checkpoint_count: int = 0
    thread_count: int = 1


class FileSinkPayload(msgspec.Struct, frozen=True):
    """Configuration of a file sink's committer."""

    base_path: str
    part_prefix: str = "part"
    part_suffix: str = ""
    compaction: Compaction | None = None


def decode_file_payload(payload: bytes) -> Any:
    """Return the FileSinkPayload."""
    return msgspec.msgpack.decode(payload, type=FileSinkPayload)
