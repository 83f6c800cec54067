"""Leases of readers that read a snapshot without a job: clean-up waits for them.

    <snapshot>/_leases/<token>      until when, and by whom: JSON

A reader puts its lease and looks for the metadata *afterwards*; who cleans up looks for leases, deletes the metadata,
and looks once more before anything else goes. So one of the two sees the other. Several readers may share a lease, as
tasks of Spark do that nobody counts: each renews it, and it ends by itself when none does, as with a reader that is
killed. Only who alone has it gives it back. Clocks of different machines are compared: they may differ by less than two
thirds of a lease. Everything here blocks.
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
from headrace.core.randomness import SeededRandom, system_random

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
    """The right of one reader to find a snapshot's files; it travels to whoever reads a part.

    `renewed_ms`: since when this copy has nothing to do, for a third of `duration_ms`.
    """

    snapshot_uri: str
    token: str
    holder: str
    duration_ms: int
    renewed_ms: int
    clock: Clock = dataclasses.field(default_factory=SystemClock)

    def renewed(self, *, is_certain: bool = True) -> "Lease":
        """Go on with the lease, which is taken anew where it has ended. SnapshotSubsumedError.

        Without `is_certain` nothing is done before a third of its time is over.
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
                _check_published(self)  # and no folder is made where there is none any more
            self.write(now_ms)
            if not is_held:
                _check_published(self)  # whoever cleans up may have been here meanwhile
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
    random: SeededRandom | None = None,
) -> Lease | None:
    """Return a lease on a snapshot; None where this process may not write there, so that files may go at any time.

    `holder`: what people are to know of the reader. SnapshotSubsumedError where the snapshot is not there any more.
    """
    clock = SystemClock() if clock is None else clock
    token = (system_random() if random is None else random).randbytes(8).hex()
    now_ms = clock.now_ms()
    lease = Lease(snapshot_uri, token, holder, duration_ms, now_ms, clock=clock)
    if not is_published(snapshot_uri):
        raise subsumed(snapshot_uri)  # and no folder is made where there is none any more
    try:
        _forget_ended(snapshot_uri, now_ms)
        lease.write(now_ms)
    except CheckpointStorageError as error:
        _LOG.warning("%s is read without a lease: %s", snapshot_uri, error)
        return None
    _check_published(lease)
    return lease


def live_leases(snapshot_uri: str, now_ms: int) -> list[LeaseRecord]:
    """Return the leases on a snapshot that have not ended; one that cannot be read has not. CheckpointStorageError."""
    records = [_record_at(one.uri, now_ms) for one in _entries(snapshot_uri)]
    return [one for one in records if one is not None and one.expires_ms > now_ms]


def subsumed(snapshot_uri: str, what: str = "") -> SnapshotSubsumedError:
    """Return the error for a snapshot that is not there any more. `what`: the file that was missed."""
    ids: list[int] = []
    with contextlib.suppress(CheckpointStorageError):
        ids = published_ids_beside(snapshot_uri)
    return SnapshotSubsumedError(snapshot_uri, what, min(ids, default=None))


def explained(error: CheckpointStorageError, snapshot_uri: str) -> CheckpointStorageError:
    """Return what a failure to read a snapshot's file means: that of a snapshot which has gone meanwhile, or itself."""
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
    """Delete what readers left behind that were killed."""
    for one in _entries(snapshot_uri):
        record = _record_at(one.uri, now_ms)
        if record is not None and record.expires_ms <= now_ms:
            remove_file(one.uri)


def _entries(snapshot_uri: str) -> list[FileEntry]:
    # No token has a dot: such are files on their way, and what file systems put beside theirs.
    return [
        one
        for one in files_below(child_uri(snapshot_uri, LEASES_FOLDER), is_recursive=False)
        if "." not in one.relative_path
    ]


def _record_at(uri: str, now_ms: int) -> LeaseRecord | None:
    """Read a lease; return None where it was given back.

    An unreadable one counts as taken just now: on file systems without atomic replacement a lease is unreadable while
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
