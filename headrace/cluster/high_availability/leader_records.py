"""LeaderRecords: interface to the store in which the drivers of a cluster find its leader.

The rules of the lease are the same everywhere (`lease`); a store offers one atomic step, to take an epoch, and
refuses writes of leaders of earlier epochs. Source: Flink LeaderElectionDriver.
"""

from typing import Final, Protocol

import msgspec

from headrace.checkpoint.errors import RecordNotTrustedError
from headrace.checkpoint.storage.metadata_key import MetadataKey, seal, unseal
from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.core.errors import DECODE_ERRORS


class LeaderRecords(Protocol):
    """Records of one cluster. All calls but `doubt` block.

    CheckpointStorageError if the store fails; RecordNotTrustedError for a bad seal or another version.
    """

    def newest(self) -> LeaderRecord | None:
        """Return the record of the newest epoch, or None if there was no leader yet."""
        ...

    def newest_epoch(self) -> int:
        """Return the newest epoch; 0 if there was no leader yet."""
        ...

    def take(self, record: LeaderRecord) -> bool:
        """Take an epoch; return whether this process got it and it is the newest."""
        ...

    def renew(self, record: LeaderRecord) -> None:
        """Replace the record of this process's epoch, unless a later one exists."""
        ...

    def doubt(self) -> str:
        """Return a reason, known without a request, for which this process no longer leads; empty if there is none."""
        ...


class SealedLeaderRecord:
    """Encodes the records of one cluster with a seal, and decodes them after checking it."""

    def __init__(self, cluster: str, key: MetadataKey) -> None:
        self._cluster: Final = cluster
        self._key: Final = key

    def encode(self, record: LeaderRecord) -> bytes:
        """Return the bytes of a record."""
        return seal(msgspec.json.encode(record), self._subject(record.epoch), self._key)

    def decode(self, content: bytes, epoch: int, place: str) -> LeaderRecord:
        """Return the record of an epoch that was read at `place`.

        RecordNotTrustedError for a bad seal or another version.
        """
        try:
            sealed = unseal(content, self._subject(epoch), self._key, place)
            return msgspec.json.decode(sealed, type=LeaderRecord)
        except DECODE_ERRORS as error:
            raise RecordNotTrustedError(place, f"another version wrote it ({error})") from error

    def _subject(self, epoch: int) -> str:
        return f"leader {epoch} of cluster {self._cluster}"
