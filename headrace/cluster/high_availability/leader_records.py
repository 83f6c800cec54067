"""LeaderRecords: the place where the drivers of a cluster see who leads it, whatever that place is.

The rules of the lease are the same everywhere (`lease`); a place offers one step that is atomic, to take an epoch, and
refuses what a leader of an earlier epoch writes. Source: Flink LeaderElectionDriver.
"""

from typing import Final, Protocol

import msgspec

from headrace.checkpoint.errors import RecordNotTrustedError
from headrace.checkpoint.storage.metadata_key import MetadataKey, seal, unseal
from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.core.errors import DECODE_ERRORS


class LeaderRecords(Protocol):
    """Records of one cluster. All calls but `doubt` block. CheckpointStorageError, RecordNotTrustedError."""

    def newest(self) -> LeaderRecord | None:
        """Return the record of the newest epoch, or None where nobody has ever led."""
        ...

    def newest_epoch(self) -> int:
        """Return the newest epoch; 0: nobody has ever led."""
        ...

    def take(self, record: LeaderRecord) -> bool:
        """Take an epoch, and return whether this process got it and it is the newest."""
        ...

    def renew(self, record: LeaderRecord) -> None:
        """Replace the record of the epoch that this process has taken, unless a later one is there."""
        ...

    def doubt(self) -> str:
        """Return the reason for which this process leads no longer, known without asking; empty where there is none."""
        ...


class SealedLeaderRecord:
    """Turns records of one cluster into sealed bytes, and back once the seal was checked."""

    def __init__(self, cluster: str, key: MetadataKey) -> None:
        self._cluster: Final = cluster
        self._key: Final = key

    def encode(self, record: LeaderRecord) -> bytes:
        """Return the bytes of a record."""
        return seal(msgspec.json.encode(record), self._subject(record.epoch), self._key)

    def decode(self, content: bytes, epoch: int, place: str) -> LeaderRecord:
        """Return the record of an epoch that was read at `place`. RecordNotTrustedError."""
        try:
            sealed = unseal(content, self._subject(epoch), self._key, place)
            return msgspec.json.decode(sealed, type=LeaderRecord)
        except DECODE_ERRORS as error:
            raise RecordNotTrustedError(place, f"another version wrote it ({error})") from error

    def _subject(self, epoch: int) -> str:
        return f"leader {epoch} of cluster {self._cluster}"
