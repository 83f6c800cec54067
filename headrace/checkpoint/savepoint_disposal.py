"""Deletes savepoints that their users want no more."""

from headrace.checkpoint.checkpoint_storage import load_snapshot
from headrace.checkpoint.errors import MetadataError, SnapshotLeasedError
from headrace.checkpoint.file_systems import (
    child_uri,
    files_below,
    remove_file,
    remove_folder,
)
from headrace.checkpoint.leases import live_leases
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.metadata_format import METADATA_NAME
from headrace.core.clock import Clock, SystemClock
from headrace.core.config import Settings


def dispose_savepoint(
    path: str, settings: Settings, clock: Clock | None = None
) -> CompletedCheckpoint:
    """Delete a savepoint: first what makes it one, then its files. MetadataError, CheckpointStorageError.

    SnapshotLeasedError where somebody reads it: nothing was deleted. There is no way back afterwards, so that whoever
    begins to read it in this very moment is told that it was disposed of.
    """
    clock = SystemClock() if clock is None else clock
    snapshot = load_snapshot(path, settings)
    if not snapshot.metadata.kind.is_savepoint:
        raise MetadataError(
            f"{snapshot.uri} is a checkpoint, which other checkpoints may refer to: only savepoints are disposed of"
        )
    _check_leases(snapshot.uri, clock)
    remove_file(child_uri(snapshot.uri, METADATA_NAME))
    for entry in files_below(snapshot.uri):
        remove_file(entry.uri)
    remove_folder(snapshot.uri)
    return snapshot


def _check_leases(snapshot_uri: str, clock: Clock) -> None:
    now_ms = clock.now_ms()
    leases = live_leases(snapshot_uri, now_ms)
    if leases:
        last = max(leases, key=lambda one: one.expires_ms)
        raise SnapshotLeasedError(
            snapshot_uri, last.holder, last.expires_ms, last.expires_ms - now_ms
        )
