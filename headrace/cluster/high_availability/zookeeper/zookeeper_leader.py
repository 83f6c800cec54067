"""ZooKeeperLeader and ZooKeeperPointers: store the leader and the pointers to job graphs in ZooKeeper.

A transaction that only one contender can commit takes an epoch. As everywhere, the observer judges the lease,
not the expiry of an ephemeral node: a leader cannot learn when the servers expire its session, only
when it last heard from them. Source: Flink ZooKeeperLeaderElectionDriver.
"""

from typing import Final

from headrace.checkpoint.storage.metadata_key import MetadataKey
from headrace.cluster.high_availability.leader_records import SealedLeaderRecord
from headrace.cluster.high_availability.lease import LeaderRecord, LeaseTerms
from headrace.cluster.high_availability.zookeeper.zookeeper_client import (
    JOB_GRAPHS,
    LEADER,
    SESSION_TIMEOUT,
    ZooKeeperClient,
)
from headrace.core.config import Settings
from headrace.core.ids import JobId

_RETRY_PERIOD_MAX_MS: Final = 1_000.0


class ZooKeeperLeader:
    """LeaderRecords in two nodes of ZooKeeper."""

    def __init__(self, client: ZooKeeperClient, key: MetadataKey) -> None:
        self._client: Final = client
        self._sealed: Final = SealedLeaderRecord(client.cluster, key)
        self._path: Final = client.path(LEADER)

    def newest(self) -> LeaderRecord | None:
        epoch = self._client.epoch()
        while epoch:
            content = self._client.read(LEADER)
            before, epoch = epoch, self._client.epoch()
            # Otherwise another process took the next epoch between the two reads.
            if epoch == before:
                return self._sealed.decode(content, epoch, self._path)
        return None

    def newest_epoch(self) -> int:
        return self._client.epoch()

    def take(self, record: LeaderRecord) -> bool:
        content = self._sealed.encode(record)
        return self._client.take(record.epoch, LEADER, content=content)

    def renew(self, record: LeaderRecord) -> None:
        content = self._sealed.encode(record)
        self._client.write(record.epoch, LEADER, content=content)

    def doubt(self) -> str:
        return self._client.loss


def zookeeper_terms(settings: Settings) -> LeaseTerms:
    """Return the terms of the lease; a third of the session time-out allows for clocks that run at different rates."""
    timeout_ms = settings.get_option(SESSION_TIMEOUT).total_seconds() * 1000
    deadline_ms = timeout_ms * 2 / 3
    return LeaseTerms(timeout_ms, deadline_ms, min(_RETRY_PERIOD_MAX_MS, deadline_ms / 4))


class ZooKeeperPointers:
    """JobGraphPointers in ZooKeeper, which refuses writes of an earlier leader.

    Source: Flink ZooKeeperStateHandleStore.
    """

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client: Final = client

    def put(self, epoch: int, job_id: JobId, pointer: bytes) -> None:
        self._client.put(epoch, JOB_GRAPHS, job_id.hex(), content=pointer)

    def read_all(self, epoch: int) -> dict[str, bytes]:
        return {
            name: self._client.read(JOB_GRAPHS, name) for name in self._client.children(JOB_GRAPHS)
        }

    def remove(self, epoch: int, job_id: JobId) -> None:
        self._client.remove(epoch, JOB_GRAPHS, job_id.hex())
