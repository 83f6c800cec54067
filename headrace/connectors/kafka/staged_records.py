"""Staged records: wait for their transaction, as bytes within a committable or in a file that it names.

The task serialises them, so that no user code runs in the committer's process.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY
from headrace.checkpoint.storage.file_systems import folder_entries
from headrace.checkpoint.storage.subtask_storage import digest_of
from headrace.connectors.files.paths import file_system_of, is_link
from headrace.connectors.files.sink.staging import delete_file, remove_if_empty
from headrace.connectors.kafka.clients import KafkaRecord
from headrace.core.config import Settings
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.core.record_batch import stream_bytes

KAFKA_COMMITTER: Final = "kafka"
INLINE_SIZE_MAX: Final = 16 * 1024
"""Size of records that may be sent within the checkpoint itself; more go to a file, if there is a folder."""
STAGED_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("key", pa.large_binary()),
        ("value", pa.large_binary()),
        ("timestamp_ms", pa.int64()),
    ]
)
_STAGED_NAME: Final = re.compile(r"([0-9]{1,9})-([0-9]{1,9})-[0-9a-f]+-[0-9]+\.arrow")


class StagedRecords(msgspec.Struct, frozen=True):
    """Writer → committer: records in order, as an Arrow IPC stream: `content`, or the file at `path`.

    `digest` is the digest of the file's content, because others may write in its folder, and Arrow does not check
    offsets. Empty if an earlier version wrote the file.
    """

    content: bytes
    path: str
    record_count: int
    subtask_index: int
    attempt_number: int
    digest: bytes = b""


class StagedFileChangedError(HeadraceError):
    """Raised if a file of staged records was changed after the task wrote it. None of it was used."""

    domain, recoverable = ErrorDomain.EXTERNAL, False


class KafkaPayload(msgspec.Struct, frozen=True):
    """Configuration of the committer. `config` holds options of librdkafka."""

    config: dict[str, str]
    transactional_id_prefix: str
    control_topic: str


STAGED: Final = msgspec.msgpack.Decoder(StagedRecords)


def to_ipc_stream(records: Sequence[KafkaRecord]) -> bytes:
    """Return records as the bytes of an Arrow stream."""
    columns = [
        pa.array([one.topic for one in records]).dictionary_encode(),
        pa.array([one.key for one in records], pa.large_binary()),
        pa.array([one.value for one in records], pa.large_binary()),
        pa.array([one.timestamp_ms for one in records], pa.int64()),
    ]
    return stream_bytes(STAGED_SCHEMA, [pa.RecordBatch.from_arrays(columns, schema=STAGED_SCHEMA)])


def staged_records(staged: StagedRecords) -> Iterator[KafkaRecord]:
    """Yield the records of a committable, in order.

    FileNotFoundError if its file is missing, StagedFileChangedError if it was changed.
    """
    content: Any = staged.content
    if staged.path:
        file_system, path = file_system_of(staged.path)
        with file_system.open_input_stream(path, compression=None) as stream:
            content = stream.read()
        if staged.digest and digest_of(content) != staged.digest:
            raise StagedFileChangedError(
                f"the staged records in {staged.path} were changed after they were written: restore the file from a "
                "copy, or restore an older checkpoint; check who has write access to that folder"
            )
    for batch in pa.ipc.open_stream(content):
        batch.validate(full=True)
        for topic, key, value, timestamp_ms in zip(
            *(column.to_pylist() for column in batch.columns), strict=True
        ):
            yield KafkaRecord(topic, key, value, None, timestamp_ms)


def delete_staged(staged: Iterable[StagedRecords]) -> None:
    """Delete the files that committables name. Idempotent."""
    for one in staged:
        if one.path:
            file_system, path = file_system_of(one.path)
            delete_file(file_system, path)
            remove_if_empty(file_system, path.rpartition("/")[0])


def staging_folder(settings: Settings, owner: str) -> str:
    """Return the folder for staged records of a sink; empty if no folder is shared with the driver."""
    directory = settings.get_option(CHECKPOINT_DIRECTORY)
    return f"{directory.rstrip('/')}/kafka-staging/{owner}" if directory else ""


def delete_older_attempts(staged: StagedRecords) -> None:
    """Delete the files that earlier attempts of a committable's subtask wrote next to its own."""
    subtask_index, attempt_number = staged.subtask_index, staged.attempt_number
    _delete_in(
        staged.path.rpartition("/")[0],
        lambda subtask, attempt: subtask == subtask_index and attempt < attempt_number,
    )


def delete_all_staged(folder: str) -> None:
    """Delete the files that all attempts of a sink's subtasks wrote to its folder."""
    _delete_in(folder, lambda _subtask, _attempt: True)


def _delete_in(folder: str, is_deleted: Callable[[int, int], bool]) -> None:
    """Delete staged files by subtask and attempt, and the folder if it is empty."""
    file_system, path = file_system_of(folder)
    if is_link(file_system, path):
        return  # what lies behind it is not ours to delete
    for info in folder_entries(file_system, path):
        found = _STAGED_NAME.fullmatch(info.base_name)
        if found and is_deleted(int(found[1]), int(found[2])):
            delete_file(file_system, info.path)
    remove_if_empty(file_system, path)
