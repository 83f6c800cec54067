"""Deletes savepoints that their users want no more."""

from headrace.checkpoint.checkpoint_storage import load_snapshot
from headrace.checkpoint.errors import MetadataError, SnapshotLeasedError
from headrace.checkpoint.file_systems import (
    child_uri,
    files_below,
    put_if_absent,
    read_all,
    remove_file,
    remove_folder,
)
from headrace.checkpoint.leases import live_leases
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.metadata_format import METADATA_NAME
from headrace.core.clock import Clock, SystemClock
from headrace.core.config import Settings
from headrace.core.randomness import system_random


def dispose_savepoint(
    path: str, settings: Settings, clock: Clock | None = None
) -> CompletedCheckpoint:
    """Delete a savepoint: first what makes it one, then its files. MetadataError, CheckpointStorageError.

    SnapshotLeasedError where somebody reads it: nothing was deleted.
    """
    clock = SystemClock() if clock is None else clock
    snapshot = load_snapshot(path, settings)
    if not snapshot.metadata.kind.is_savepoint:
        raise MetadataError(
            f"{snapshot.uri} is a checkpoint, which other checkpoints may refer to: only savepoints are disposed of"
        )
    _check_leases(snapshot.uri, clock)
    uri = child_uri(snapshot.uri, METADATA_NAME)
    content = bytes(read_all(uri))
    remove_file(uri)
    try:
        # Somebody may have begun to read it in this very moment.
        _check_leases(snapshot.uri, clock)
    except SnapshotLeasedError:
        put_if_absent(uri, content, system_random().randbytes(8).hex())
        raise
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
