"""Finds the snapshot and operator that a user names, and keeps the snapshot from being deleted.

A snapshot is read under a lease, as others may delete it meanwhile; if no lease can be written, reading continues, and
the error for a missing file explains the deletion.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Generator, Sequence

from headrace.checkpoint.errors import (
    CheckpointStorageError,
    MetadataMissingError,
    SnapshotSubsumedError,
)
from headrace.checkpoint.handles import StateFile
from headrace.checkpoint.metadata import CheckpointMetadata, CompletedCheckpoint, OperatorSnapshot
from headrace.checkpoint.retention.inspection import find_snapshots
from headrace.checkpoint.retention.leases import LEASE_DURATION_MS, explained, take_lease
from headrace.checkpoint.storage.checkpoint_storage import (
    is_published,
    load_snapshot,
    nearby_snapshots,
)
from headrace.checkpoint.storage.file_systems import file_name_of, parent_uri
from headrace.checkpoint.storage.subtask_storage import StateReader
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.operator_spec import operators_called
from headrace.core.threads import start_thread
from headrace.state_processor.errors import UnknownStateError

LATEST = "latest"
_CHECKPOINT_PREFIX = "chk-"


class PinnedReader:
    """Reads the files of one or several snapshots; a SnapshotReader. Any thread.

    SnapshotSubsumedError if a file is missing because the snapshot was deleted.
    """

    def __init__(self, *snapshot_uris: str) -> None:
        self._uris = snapshot_uris
        self._reader = StateReader()

    def read(self, file: StateFile) -> memoryview:
        with missing_explained(*self._uris):
            return self._reader.read(file)

    def fetch(self, file: StateFile, path: str) -> None:
        with missing_explained(*self._uris):
            self._reader.fetch(file, path)


@contextlib.contextmanager
def missing_explained(*snapshot_uris: str) -> Generator[None, None, None]:
    """Raise SnapshotSubsumedError if a missing file was deleted with its snapshot."""
    try:
        yield
    except SnapshotSubsumedError:
        raise
    except CheckpointStorageError as error:
        meanings = (explained(error, uri) for uri in snapshot_uris)
        raise next((one for one in meanings if one is not error), error) from error


@contextlib.contextmanager
def held(snapshot_uri: str, *, clock: Clock | None = None) -> Generator[None, None, None]:
    """Keep a snapshot from being deleted while the block runs, if this process may write there.

    SnapshotSubsumedError if it was deleted before.
    """
    taken = take_lease(snapshot_uri, holder_text(), clock=clock)
    if taken is None:
        yield
        return
    # The block may wait, for example for Spark, and cannot renew the lease meanwhile: a thread does.
    is_over = threading.Event()

    def renew() -> None:
        lease = taken
        while not is_over.wait(LEASE_DURATION_MS / 3000):
            try:
                lease = lease.renewed()
            except SnapshotSubsumedError:
                return  # whoever reads the next file is told

    renewer = start_thread("lease-renewal", renew)
    try:
        yield
    finally:
        is_over.set()
        renewer.join()
        taken.give_back()


def holder_text() -> str:
    """Return a description of this reader for messages."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def snapshot_uri(path: str, checkpoint: str = LATEST) -> str:
    """Return the folder of one snapshot: the one at `path`, or one of the job whose checkpoints are there.

    `checkpoint`: an id, or `latest`. UnknownStateError, MetadataMissingError, CheckpointStorageError.
    """
    folders = find_snapshots(path)
    complete = [one for one in folders if is_published(one)]
    if not complete:
        raise MetadataMissingError(path, nearby_snapshots(path))
    jobs = sorted({parent_uri(one) for one in complete})
    if len(jobs) > 1:
        raise UnknownStateError(f"{path} contains checkpoints of several jobs", jobs)
    if complete == folders and len(complete) == 1 and checkpoint == LATEST:
        return complete[0]
    by_id = {
        int(name.removeprefix(_CHECKPOINT_PREFIX)): one
        for one in complete
        if (name := file_name_of(one)).startswith(_CHECKPOINT_PREFIX)
    }
    if checkpoint == LATEST and by_id:
        return by_id[max(by_id)]
    if checkpoint.isdecimal() and int(checkpoint) in by_id:
        return by_id[int(checkpoint)]
    if checkpoint == LATEST:
        raise UnknownStateError(f"{path} contains several savepoints", complete)
    known = [f"{number}" for number in sorted(by_id)]
    raise UnknownStateError(
        f"checkpoint {checkpoint} is not at {path}: it was never completed, or was subsumed", known
    )


def open_snapshot(path: str, settings: Settings, checkpoint: str = LATEST) -> CompletedCheckpoint:
    """Return the snapshot; its metadata must have been written with the user's key.

    MetadataError, UnknownStateError.
    """
    return load_snapshot(snapshot_uri(path, checkpoint), settings)


def operator_in(metadata: CheckpointMetadata, named: str) -> OperatorSnapshot:
    """Return the operator with this uid, else with this id, else with this name. UnknownStateError."""
    matches = operators_called(metadata.operators, named)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UnknownStateError(f"several operators are called '{named}'", _ids(matches))
    raise UnknownStateError(
        f"snapshot {metadata.checkpoint_id} has no operator '{named}'",
        [one.title for one in metadata.operators],
    )


def _ids(operators: Sequence[OperatorSnapshot]) -> list[str]:
    return [f"{one.title} with id {one.operator_id.hex()}" for one in operators]
