"""ZooKeeperPointers: pointers to stored job graphs as nodes of ZooKeeper, which refuses those of an earlier leader.

Source: Flink ZooKeeperStateHandleStore.
"""

from typing import Final

from headrace.cluster.high_availability.zookeeper.zookeeper_client import (
    JOB_GRAPHS,
    ZooKeeperClient,
)
from headrace.core.ids import JobId


class ZooKeeperPointers:
    """Implements JobGraphPointers."""

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
