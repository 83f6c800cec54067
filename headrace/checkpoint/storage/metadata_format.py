"""The format of the file `_metadata`: a JSON document for people and any JSON reader, authenticated by its last line.

Version, completeness and authenticity are checked in this order before any of its content is used. Paths of a savepoint
are relative to its folder, which may be moved; those of a checkpoint are absolute, because it shares files with others.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec

from headrace.checkpoint.errors import (
    MetadataAuthenticationError,
    MetadataMissingError,
    MetadataTruncatedError,
    MetadataVersionError,
)
from headrace.checkpoint.handles import (
    Committable,
    OperatorSubtaskState,
    StateChunk,
    StateFile,
    StateTable,
)
from headrace.checkpoint.metadata import (
    CheckpointMetadata,
    OperatorSnapshot,
    PendingCommit,
    SnapshotEdit,
)
from headrace.checkpoint.options import KEY_FILE
from headrace.checkpoint.storage.file_systems import child_uri, parent_uri, path_below
from headrace.checkpoint.storage.metadata_key import MetadataKey
from headrace.core.barriers import SnapshotKind
from headrace.core.errors import DECODE_ERRORS
from headrace.core.ids import JobId, OperatorId

METADATA_VERSION: Final = 1
METADATA_NAME: Final = "_metadata"
_FORMAT: Final = "headrace-checkpoint"
_ABANDONED: Final = "headrace-checkpoint-abandoned"
_ALGORITHM: Final = "HMAC-SHA256"
_SEAL: Final = b',\n  "authentication": '
_END: Final = b"\n}"


class _Committable(msgspec.Struct):
    key: str
    content: bytes


class _Chunk(msgspec.Struct):
    table: str
    name: str
    rows: int
    size_bytes: int
    digest: str
    path: str | None = None
    content: bytes | None = None
    is_shared: bool = False
    key_groups: tuple[int, int] | None = None
    attributes: dict[str, str] = {}


class _Subtask(msgspec.Struct):
    index: int
    is_finished: bool
    chunks: list[_Chunk] = []
    committables: list[_Committable] = []


class _Operator(msgspec.Struct):
    id: str
    name: str
    uid: str | None
    parallelism: int
    max_parallelism: int
    subtasks: list[_Subtask]
    coordinator_state: bytes | None = None


class _PendingCommit(msgspec.Struct):
    checkpoint_id: int
    operator: str
    committables: list[_Committable]


class _Document(msgspec.Struct):
    format: str
    version: int
    checkpoint_id: int
    kind: str
    time: str
    timestamp_ms: int
    job_id: str
    job_name: str
    lineage: str
    epoch: int
    operators: list[_Operator]
    pending_commits: list[_PendingCommit]
    # Present only after an edit, so that the files of jobs have their original format.
    edit: SnapshotEdit | msgspec.UnsetType = msgspec.UNSET


class _Authentication(msgspec.Struct):
    algorithm: str
    key_id: str
    mac: str


class _Head(msgspec.Struct):
    format: str
    version: object = None


def encode_metadata(metadata: CheckpointMetadata, key: MetadataKey, folder_uri: str) -> bytes:
    """Return the file's content. `folder_uri`: the folder in which it will be stored."""
    path_of = partial(path_below, folder_uri) if metadata.kind.is_savepoint else str
    text = msgspec.json.format(msgspec.json.encode(_document_of(metadata, path_of)), indent=2)
    body = text[: -len(_END)]
    seal = _Authentication(_ALGORITHM, key.key_id, key.mac_of(body))
    return body + _SEAL + msgspec.json.encode(seal) + _END + b"\n"


def decode_metadata(
    content: bytes | memoryview, key: MetadataKey, metadata_uri: str
) -> CheckpointMetadata:
    """Return the metadata in a file.

    Raises a MetadataError for a file that is missing, truncated, of another version or not authentic.
    """
    body = _authenticated(bytes(content), key, metadata_uri)
    try:
        document = msgspec.json.decode(body, type=_Document)
        return _metadata_of(document, parent_uri(metadata_uri))
    except (*DECODE_ERRORS, KeyError) as error:
        # Authentic, but not in the format of its version: written by a faulty release.
        raise MetadataTruncatedError(metadata_uri, str(error)) from error


def read_untrusted(content: bytes | memoryview, metadata_uri: str) -> CheckpointMetadata:
    """Return the metadata in a file without authentication, only to show it to people. MetadataError."""
    body, _ = _parts_of(bytes(content), metadata_uri)
    try:
        return _metadata_of(msgspec.json.decode(body, type=_Document), parent_uri(metadata_uri))
    except (*DECODE_ERRORS, KeyError) as error:
        raise MetadataTruncatedError(metadata_uri, str(error)) from error


def abandonment(epoch: int) -> bytes:
    """Return the content that replaces the metadata of a checkpoint that must never be complete."""
    text = {"format": _ABANDONED, "version": METADATA_VERSION, "abandoned_by_epoch": epoch}
    return msgspec.json.encode(text) + b"\n"


def is_abandonment(content: bytes | memoryview) -> bool:
    """Return whether a file marks its checkpoint as given up."""
    try:
        return msgspec.json.decode(bytes(content), type=_Head).format == _ABANDONED
    except DECODE_ERRORS:
        return False


def _authenticated(content: bytes, key: MetadataKey, uri: str) -> bytes:
    body, seal = _parts_of(content, uri)
    if seal.algorithm != _ALGORITHM:
        reason = f"its algorithm is {seal.algorithm}, but only {_ALGORITHM} is supported"
        remedy = "use the version of Headrace that wrote it, or a newer one"
        raise MetadataAuthenticationError(uri, reason, remedy)
    if seal.key_id != key.key_id:
        reason = f"it was written with the key {seal.key_id}, but {KEY_FILE.key} holds {key.key_id}"
        remedy = f"set {KEY_FILE.key} to the file with that key"
        raise MetadataAuthenticationError(uri, reason, remedy)
    if not key.fits(body[: -len(_END)], seal.mac):
        raise MetadataAuthenticationError(uri, "it was changed after it was written")
    return body


def _parts_of(content: bytes, uri: str) -> tuple[bytes, _Authentication]:
    """Split the document from its last line. MetadataError if either is incomplete."""
    if is_abandonment(content):
        raise MetadataMissingError(uri)
    if not content.startswith(b'{\n  "format": "%s",\n' % _FORMAT.encode()):
        raise MetadataTruncatedError(uri, "it does not begin like metadata of Headrace")
    body, mark, tail = content.rpartition(_SEAL)
    version_line = content.split(b"\n", 3)[2]
    if version_line != b'  "version": %d,' % METADATA_VERSION:
        found = version_line.partition(b":")[2].strip(b" ,").decode(errors="replace")
        raise MetadataVersionError(uri, found, (METADATA_VERSION,))
    if not mark or not tail.endswith(_END + b"\n"):
        raise MetadataTruncatedError(uri, f"it ends after {len(content)} bytes without a last line")
    try:
        seal = msgspec.json.decode(tail[: -len(_END) - 1], type=_Authentication)
    except DECODE_ERRORS as error:
        raise MetadataTruncatedError(uri, f"its last line cannot be read: {error}") from error
    return body + _END, seal


def _document_of(metadata: CheckpointMetadata, path_of: Callable[[str], str]) -> _Document:
    moment = datetime.fromtimestamp(metadata.timestamp_ms / 1000, UTC)
    return _Document(
        format=_FORMAT,
        version=METADATA_VERSION,
        checkpoint_id=metadata.checkpoint_id,
        kind=metadata.kind.name,
        time=moment.isoformat(timespec="milliseconds"),
        timestamp_ms=metadata.timestamp_ms,
        job_id=metadata.job_id.hex(),
        job_name=metadata.job_name,
        lineage=metadata.lineage,
        epoch=metadata.epoch,
        operators=[_operator_document(operator, path_of) for operator in metadata.operators],
        pending_commits=[
            _PendingCommit(
                one.checkpoint_id, one.operator_id.hex(), _committable_documents(one.committables)
            )
            for one in metadata.pending_commits
        ],
        edit=msgspec.UNSET if metadata.edit is None else metadata.edit,
    )


def _operator_document(operator: OperatorSnapshot, path_of: Callable[[str], str]) -> _Operator:
    indices = sorted(operator.subtasks.keys() | operator.finished_subtasks)
    return _Operator(
        id=operator.operator_id.hex(),
        name=operator.name,
        uid=operator.uid,
        parallelism=operator.parallelism,
        max_parallelism=operator.max_parallelism,
        subtasks=[_subtask_document(operator, index, path_of) for index in indices],
        coordinator_state=operator.coordinator_state,
    )


def _subtask_document(
    operator: OperatorSnapshot, index: int, path_of: Callable[[str], str]
) -> _Subtask:
    state = operator.subtasks.get(index, OperatorSubtaskState())
    return _Subtask(
        index=index,
        is_finished=index in operator.finished_subtasks,
        chunks=[_chunk_document(chunk, path_of) for chunk in state.chunks],
        committables=_committable_documents(state.committables),
    )


def _chunk_document(chunk: StateChunk, path_of: Callable[[str], str]) -> _Chunk:
    file = chunk.file
    return _Chunk(
        table=chunk.table.value,
        name=chunk.name,
        rows=chunk.row_count,
        size_bytes=file.size_bytes,
        digest=file.digest.hex(),
        path=path_of(file.uri) if file.uri else None,
        content=None if file.uri else file.content,
        is_shared=file.is_shared,
        key_groups=chunk.key_groups,
        attributes=chunk.attributes,
    )


def _committable_documents(committables: tuple[Committable, ...]) -> list[_Committable]:
    return [_Committable(one.key, one.content) for one in committables]


def _metadata_of(document: _Document, folder_uri: str) -> CheckpointMetadata:
    return CheckpointMetadata(
        checkpoint_id=document.checkpoint_id,
        kind=SnapshotKind[document.kind],
        timestamp_ms=document.timestamp_ms,
        job_id=JobId.from_hex(document.job_id),
        job_name=document.job_name,
        lineage=document.lineage,
        epoch=document.epoch,
        operators=tuple(_operator_of(one, folder_uri) for one in document.operators),
        pending_commits=tuple(
            PendingCommit(
                one.checkpoint_id,
                OperatorId.from_hex(one.operator),
                _committables_of(one.committables),
            )
            for one in document.pending_commits
        ),
        edit=None if document.edit is msgspec.UNSET else document.edit,
    )


def _operator_of(document: _Operator, folder_uri: str) -> OperatorSnapshot:
    finished = frozenset(one.index for one in document.subtasks if one.is_finished)
    return OperatorSnapshot(
        operator_id=OperatorId.from_hex(document.id),
        name=document.name,
        parallelism=document.parallelism,
        max_parallelism=document.max_parallelism,
        uid=document.uid,
        subtasks={
            one.index: OperatorSubtaskState(
                tuple(_chunk_of(chunk, folder_uri) for chunk in one.chunks),
                _committables_of(one.committables),
            )
            for one in document.subtasks
            if not one.is_finished or one.chunks or one.committables
        },
        finished_subtasks=finished,
        coordinator_state=document.coordinator_state,
    )


def _chunk_of(document: _Chunk, folder_uri: str) -> StateChunk:
    file = StateFile(
        uri="" if document.path is None else _resolved(document.path, folder_uri),
        content=document.content or b"",
        size_bytes=document.size_bytes,
        digest=bytes.fromhex(document.digest),
        is_shared=document.is_shared,
    )
    return StateChunk(
        table=StateTable(document.table),
        name=document.name,
        row_count=document.rows,
        file=file,
        key_groups=document.key_groups,
        attributes=document.attributes,
    )


def _resolved(path: str, folder_uri: str) -> str:
    is_absolute = path.startswith("/") or ":" in path.partition("/")[0]
    return path if is_absolute else child_uri(folder_uri, path)


def _committables_of(documents: list[_Committable]) -> tuple[Committable, ...]:
    return tuple(Committable(one.key, one.content) for one in documents)
