"""Inspects snapshots for people: lists those in a folder, and reads their contents, also if they cannot be trusted."""

import enum
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headrace.checkpoint.errors import (
    NEVER_COMPLETED,
    CheckpointStorageError,
    MetadataAuthenticationError,
    MetadataError,
)
from headrace.checkpoint.metadata import CheckpointMetadata
from headrace.checkpoint.storage.checkpoint_storage import snapshot_folder
from headrace.checkpoint.storage.file_systems import (
    absolute_uri,
    child_uri,
    file_name_of,
    folders_in,
    is_there,
    read_all,
    size_of,
)
from headrace.checkpoint.storage.metadata_format import (
    METADATA_NAME,
    decode_metadata,
    is_abandonment,
    read_untrusted,
)
from headrace.checkpoint.storage.metadata_key import MetadataKey

_PREFIXES: Final = ("chk-", "savepoint-")
WHAT_TO_NAME: Final = (
    f"name the folder of a checkpoint or savepoint, its {METADATA_NAME}, or the folder of a job"
)


class SnapshotCondition(enum.Enum):
    """Conditions of a snapshot, which decide how it may be used."""

    COMPLETE = "complete"
    UNTRUSTED = "not to be trusted"
    """Readable, but not written with this key, or changed since: it cannot be restored."""
    DAMAGED = "damaged"
    UNPUBLISHED = "unpublished"
    """In progress, or left by a driver that died."""
    ABANDONED = "given up"


@dataclass(frozen=True)
class InspectedSnapshot:
    """One snapshot. `metadata` is None if it cannot be read; `reason` explains why the snapshot is not complete."""

    uri: str
    condition: SnapshotCondition
    metadata: CheckpointMetadata | None = None
    reason: str = ""


def find_snapshots(path: str) -> list[str]:
    """Return the folders of all snapshots at a path: a snapshot's, a job's or several jobs' folder.

    Raises CheckpointStorageError.
    """
    if not path:
        raise CheckpointStorageError("look for", "''", "the path is empty", WHAT_TO_NAME)
    folder = snapshot_folder(absolute_uri(path))
    if _is_file(folder):
        raise CheckpointStorageError("look into", path, "it is a file", WHAT_TO_NAME)
    if file_name_of(folder).startswith(_PREFIXES) or is_there(child_uri(folder, METADATA_NAME)):
        return [folder]
    found = _snapshots_in(folder)
    for name in folders_in(folder):
        if not name.startswith(_PREFIXES):
            found += _snapshots_in(child_uri(folder, name))
    return found


def inspect_snapshot(folder: str, key: MetadataKey) -> InspectedSnapshot:
    """Return the condition of one snapshot and, if readable, its metadata. CheckpointStorageError."""
    uri = child_uri(folder, METADATA_NAME)
    if not is_there(uri):
        return InspectedSnapshot(folder, SnapshotCondition.UNPUBLISHED, reason=NEVER_COMPLETED)
    content = read_all(uri)
    if is_abandonment(content):
        reason = "a later driver took over before it was published"
        return InspectedSnapshot(folder, SnapshotCondition.ABANDONED, reason=reason)
    try:
        return InspectedSnapshot(
            folder, SnapshotCondition.COMPLETE, decode_metadata(content, key, uri)
        )
    except MetadataAuthenticationError as error:
        metadata = read_untrusted(content, uri)
        return InspectedSnapshot(folder, SnapshotCondition.UNTRUSTED, metadata, str(error))
    except MetadataError as error:
        return InspectedSnapshot(folder, SnapshotCondition.DAMAGED, reason=str(error))


def _is_file(uri: str) -> bool:
    try:
        return size_of(uri) is not None
    except CheckpointStorageError as error:
        if not isinstance(error.__cause__, pa.ArrowInvalid):
            raise
        # The storage does not fail: Arrow knows no file system for it.
        reason = " ".join(str(error.__cause__).split())
        remedy = "check the spelling of the scheme, and that the package with its file system is installed"
        raise CheckpointStorageError("look for", uri, reason, remedy) from error


def _snapshots_in(folder: str) -> list[str]:
    names = [name for name in folders_in(folder) if name.startswith(_PREFIXES)]
    return [child_uri(folder, name) for name in sorted(names, key=_order)]


def _order(name: str) -> tuple[str, int, str]:
    """Order checkpoints by number, and other snapshots by name."""
    prefix, _, rest = name.partition("-")
    return (prefix, int(rest), "") if rest.isdecimal() else (prefix, 0, rest)
