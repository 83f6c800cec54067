"""Reading a snapshot that others may give up meanwhile: under a lease, and with an error that says what has happened.

Where no lease can be had, reading goes on all the same.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Generator

from headrace.checkpoint.errors import CheckpointStorageError, SnapshotSubsumedError
from headrace.checkpoint.handles import StateFile
from headrace.checkpoint.leases import LEASE_DURATION_MS, explained, take_lease
from headrace.checkpoint.storage import StateReader
from headrace.core.clock import Clock
from headrace.core.threads import start_thread


class PinnedReader:
    """Reads the files of a snapshot, or of several; a SnapshotReader. Any thread.

    SnapshotSubsumedError where a file is gone together with the snapshot.
    """

    def __init__(self, *snapshot_uris: str) -> None:
        self._uris = snapshot_uris
        self._reader = StateReader()

    def read(self, file: StateFile) -> memoryview:
        """See SnapshotReader."""
        with missing_explained(*self._uris):
            return self._reader.read(file)

    def fetch(self, file: StateFile, path: str) -> None:
        """See SnapshotReader."""
        with missing_explained(*self._uris):
            self._reader.fetch(file, path)


@contextlib.contextmanager
def missing_explained(*snapshot_uris: str) -> Generator[None, None, None]:
    """Tell of a file that is gone together with one of the snapshots what became of that. SnapshotSubsumedError."""
    try:
        yield
    except SnapshotSubsumedError:
        raise
    except CheckpointStorageError as error:
        meanings = (explained(error, uri) for uri in snapshot_uris)
        raise next((one for one in meanings if one is not error), error) from error


@contextlib.contextmanager
def held(
    snapshot_uri: str, *, duration_ms: int = LEASE_DURATION_MS, clock: Clock | None = None
) -> Generator[None, None, None]:
    """Keep a snapshot from being deleted for as long as the block lasts, where this process may write there.

    SnapshotSubsumedError where it is gone already.
    """
    taken = take_lease(snapshot_uri, holder_text(), duration_ms=duration_ms, clock=clock)
    if taken is None:
        yield
        return
    # The block may wait for others, as for Spark, and renews nothing meanwhile: a thread does.
    is_over = threading.Event()

    def renew() -> None:
        lease = taken
        while not is_over.wait(duration_ms / 3000):
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
    """Return what people are to know of this reader."""
    return f"process {os.getpid()} on {socket.gethostname()}"
