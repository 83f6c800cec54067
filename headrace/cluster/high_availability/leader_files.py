"""LeaderFiles: stores the leader of a cluster in files of a folder that all its drivers share. All calls block.

    <folder>/epoch-00000007     created by the leader of epoch 7, only if absent; renewed by it alone

So if two drivers take the leadership at once, one gets it, and no file ever has two writers: creation is the only
step that must be atomic. The largest epoch leads. An old leader that renews concurrently with its successor writes a
file that is no longer read, and sees the successor's right after: it writes, then reads; the successor creates, then
reads. An object store also refuses a renewal that arrives after a later one. Records are sealed with the user's key.
Source: Flink LeaderElectionDriver; Burrows 2006 (sequencers).
"""

from collections.abc import Sequence
from typing import Final

from headrace.checkpoint.errors import RecordNotTrustedError
from headrace.checkpoint.storage.file_systems import (
    FileEntry,
    child_uri,
    files_below,
    make_folder,
    put_if_absent,
    read_all,
    remove_file,
    remove_leftovers,
    replace_own_hint,
)
from headrace.checkpoint.storage.metadata_key import MetadataKey
from headrace.cluster.high_availability.leader_election_service import LeadershipLostError
from headrace.cluster.high_availability.leader_records import SealedLeaderRecord
from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.core.randomness import SeededRandom

_KEPT: Final = 2
"""Number of files of the newest epochs that are kept: the leader's, and its predecessor's, which may still renew it."""


class LeaderFiles:
    """LeaderRecords in files.

    CheckpointStorageError if the storage fails; RecordNotTrustedError for a bad seal or another version.
    """

    def __init__(
        self,
        folder_uri: str,
        cluster: str,
        key: MetadataKey,
        random: SeededRandom,
        *,
        is_shared: bool = False,
    ) -> None:
        """Set the folder and its key; for `is_shared` see file_systems.make_folder."""
        self._folder: Final = folder_uri
        self._cluster: Final = cluster
        self._sealed: Final = SealedLeaderRecord(cluster, key)
        self._random: Final = random
        self._is_shared: Final = is_shared
        self._term = ""

    def newest(self) -> LeaderRecord | None:
        """Return the record of the newest epoch, or None if there was no leader yet."""
        epochs = self._epochs()
        if not epochs:
            return None
        uri, content = self._uri(epochs[-1]), b""
        while True:
            last, content = content, bytes(read_all(uri))
            try:
                return self._sealed.decode(content, epochs[-1], uri)
            except RecordNotTrustedError:
                # An object store truncates a record that is renewed while it is read; real damage persists.
                if content == last:
                    raise

    def newest_epoch(self) -> int:
        """Return the newest epoch; 0 if there was no leader yet."""
        return max(self._epochs(), default=0)

    def take(self, record: LeaderRecord) -> bool:
        """Take an epoch; return whether this process got it and it is the newest."""
        make_folder(self._folder, is_shared=self._is_shared)
        self._term = self._random.randbytes(8).hex()
        if not put_if_absent(self._uri(record.epoch), self._sealed.encode(record), self._term):
            return False
        entries = files_below(self._folder, is_recursive=False)
        epochs = _epochs_of(entries)
        for older in epochs[:-_KEPT]:
            # Possibly its own file, if it has slept since it saw the last leader and others have led meanwhile.
            remove_file(self._uri(older))
        # A single clock, that of the file system, has dated all files, including its own record a moment ago.
        remove_leftovers(entries, max((entry.modified_ms or 0 for entry in entries), default=0))
        return epochs[-1] == record.epoch

    def renew(self, record: LeaderRecord) -> None:
        """Replace the record of this process's epoch. LeadershipLostError if the record is no longer its own."""
        # After a power loss there is no leader: no observer relies on the file then.
        uri = self._uri(record.epoch)
        if not replace_own_hint(uri, self._sealed.encode(record), self._term):
            raise LeadershipLostError(self._cluster, f"{uri} is no longer its record")

    def doubt(self) -> str:
        """Return nothing: the state is unknown without reading the folder."""
        return ""

    def _epochs(self) -> Sequence[int]:
        return _epochs_of(files_below(self._folder, is_recursive=False))

    def _uri(self, epoch: int) -> str:
        return child_uri(self._folder, f"epoch-{epoch:08d}")


def _epochs_of(entries: Sequence[FileEntry]) -> Sequence[int]:
    found: list[int] = []
    for entry in entries:
        kind, _, digits = entry.relative_path.partition("-")
        if kind == "epoch" and digits.isdecimal():
            found.append(int(digits))
    return sorted(found)
