"""Lease: the right of a reader without a job to find a snapshot's files, for which clean-up waits.

    <snapshot>/_leases/<token>      until when, and by whom: JSON

A reader writes its lease and looks for the metadata *afterwards*; the cleaner looks for leases, deletes the metadata,
and looks once more before it deletes any other file. So one of the two sees the other. Several readers may share a
lease, as tasks of Spark do: each renews it, and it expires when none does, as with a reader that is killed. Only a sole
holder gives the lease back. Clocks of different machines are compared: they may differ by less than two thirds of a
lease. All functions block.
Source: Gray and Cheriton 1989.
"""

import contextlib
import dataclasses
import logging
from dataclasses import dataclass
from typing import Final

import msgspec

from headrace.checkpoint.errors import CheckpointStorageError, SnapshotSubsumedError
from headrace.checkpoint.storage.checkpoint_storage import is_published, published_ids_beside
from headrace.checkpoint.storage.file_systems import (
    FileEntry,
    child_uri,
    files_below,
    is_there,
    read_all,
    remove_file,
    replace_file,
)
from headrace.core.clock import Clock, SystemClock
from headrace.core.errors import DECODE_ERRORS
from headrace.core.randomness import system_random

_LOG: Final = logging.getLogger(__name__)
LEASES_FOLDER: Final = "_leases"
LEASE_DURATION_MS: Final = 5 * 60_000
_RENEWALS_PER_LEASE: Final = 3
_ATTEMPTS_PER_RENEWAL: Final = 4


class LeaseRecord(msgspec.Struct, frozen=True):
    """Content of a lease: the time at which it expires (epoch ms), and its holder, for people to read."""

    expires_ms: int
    holder: str


@dataclass(frozen=True)
class Lease:
    """The right of one reader to find a snapshot's files; it is sent to the readers of its parts.

    `renewed_ms`: the time from which this copy need not be renewed for a third of `duration_ms`.
    """

    snapshot_uri: str
    token: str
    holder: str
    duration_ms: int
    renewed_ms: int
    clock: Clock = dataclasses.field(default_factory=SystemClock)

    def renewed(self, *, is_certain: bool = True) -> "Lease":
        """Renew the lease, or take it anew if it has expired. Raises SnapshotSubsumedError.

        Without `is_certain` this does nothing before a third of its time is over.
        """
        now_ms = self.clock.now_ms()
        interval_ms = self.duration_ms // _RENEWALS_PER_LEASE
        is_due = now_ms - self.renewed_ms >= interval_ms
        if not (is_due or is_certain):
            return self
        try:
            record = _record_at(self._uri, now_ms)
            is_held = record is not None and record.expires_ms > now_ms
            if is_held and not is_due:
                return self
            if not is_held:
                _check_published(self)  # else a deleted folder would be made again
            self.write(now_ms)
            if not is_held:
                _check_published(self)  # the cleaner may have been here meanwhile
        except SnapshotSubsumedError:
            raise
        except CheckpointStorageError as error:
            _LOG.warning("a lease was not renewed; reading goes on without it: %s", error)
            # Tried again before the lease ends, but not with every batch.
            retry_ms = interval_ms // _ATTEMPTS_PER_RENEWAL
            return dataclasses.replace(self, renewed_ms=now_ms - interval_ms + retry_ms)
        return dataclasses.replace(self, renewed_ms=now_ms)

    def give_back(self) -> None:
        """End the lease by deleting its file: its holder has finished reading."""
        with contextlib.suppress(CheckpointStorageError):
            remove_file(self._uri)

    def write(self, now_ms: int) -> None:
        """Write the lease's file, so that it expires `duration_ms` from now. CheckpointStorageError."""
        record = LeaseRecord(now_ms + self.duration_ms, self.holder)
        # Several parts renew one lease at a time: each has a temporary name of its own.
        unique = system_random().randbytes(4).hex()
        replace_file(self._uri, msgspec.json.encode(record), unique)

    @property
    def _uri(self) -> str:
        return child_uri(self.snapshot_uri, LEASES_FOLDER, self.token)


def take_lease(
    snapshot_uri: str,
    holder: str,
    *,
    duration_ms: int = LEASE_DURATION_MS,
    clock: Clock | None = None,
) -> Lease | None:
    """Return a lease on a snapshot; None if this process may not write there: then files may be deleted at any time.

    `holder`: a description of the reader, for people. SnapshotSubsumedError if the snapshot does not exist any more.
    """
    clock = SystemClock() if clock is None else clock
    token = system_random().randbytes(8).hex()
    now_ms = clock.now_ms()
    lease = Lease(snapshot_uri, token, holder, duration_ms, now_ms, clock=clock)
    if not is_published(snapshot_uri):
        raise subsumed(snapshot_uri)  # else a deleted folder would be made again
    try:
        _forget_ended(snapshot_uri, now_ms)
        lease.write(now_ms)
    except CheckpointStorageError as error:
        _LOG.warning("%s is read without a lease: %s", snapshot_uri, error)
        return None
    _check_published(lease)
    return lease


def live_leases(snapshot_uri: str, now_ms: int) -> list[LeaseRecord]:
    """Return the leases on a snapshot that have not expired; an unreadable one counts. CheckpointStorageError."""
    records = [_record_at(one.uri, now_ms) for one in _entries(snapshot_uri)]
    return [one for one in records if one is not None and one.expires_ms > now_ms]


def subsumed(snapshot_uri: str, what: str = "") -> SnapshotSubsumedError:
    """Return the error for a snapshot that no longer exists. `what`: the missing file."""
    ids: list[int] = []
    with contextlib.suppress(CheckpointStorageError):
        ids = published_ids_beside(snapshot_uri)
    return SnapshotSubsumedError(snapshot_uri, what, min(ids, default=None))


def explained(error: CheckpointStorageError, snapshot_uri: str) -> CheckpointStorageError:
    """Return SnapshotSubsumedError if reading failed because the snapshot was deleted meanwhile, else `error`."""
    with contextlib.suppress(CheckpointStorageError):
        if not is_there(error.uri) and not is_published(snapshot_uri):
            return subsumed(snapshot_uri, error.uri)
    return error


def _check_published(lease: Lease) -> None:
    if is_published(lease.snapshot_uri):
        return
    lease.give_back()
    raise subsumed(lease.snapshot_uri)


def _forget_ended(snapshot_uri: str, now_ms: int) -> None:
    """Delete expired leases, which killed readers leave."""
    for one in _entries(snapshot_uri):
        record = _record_at(one.uri, now_ms)
        if record is not None and record.expires_ms <= now_ms:
            remove_file(one.uri)


def _entries(snapshot_uri: str) -> list[FileEntry]:
    # No token has a dot: names with a dot are files being written, or files of the file system itself.
    return [
        one
        for one in files_below(child_uri(snapshot_uri, LEASES_FOLDER), is_recursive=False)
        if "." not in one.relative_path
    ]


def _record_at(uri: str, now_ms: int) -> LeaseRecord | None:
    """Read a lease; return None if it was given back.

    An unreadable lease counts as just taken: on file systems without atomic replacement a lease is unreadable while
    it is renewed.
    """
    try:
        return msgspec.json.decode(bytes(read_all(uri)), type=LeaseRecord)
    except DECODE_ERRORS:
        holder = f"an unknown reader (the lease {uri} is damaged: delete it if nobody reads the snapshot)"
        return LeaseRecord(now_ms + LEASE_DURATION_MS, holder)
    except CheckpointStorageError:
        if is_there(uri):
            raise
        return None
