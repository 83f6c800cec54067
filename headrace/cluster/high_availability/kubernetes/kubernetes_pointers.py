"""KubernetesPointers: pointers to stored job graphs in a ConfigMap of the newest leader that has read it.

A leader writes its epoch into the ConfigMap when it reads the pointers. From then on a write of an earlier leader
conflicts with the version that it has seen, and it finds the later epoch. Source: Flink KubernetesStateHandleStore.
"""

from collections.abc import Callable
from typing import Any, Final

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.cluster.high_availability.kubernetes.kubernetes_client import (
    KubernetesClient,
    VersionConflictError,
)
from headrace.cluster.high_availability.leader_election_service import LeadershipLostError
from headrace.core.ids import JobId

_EPOCH: Final = "headrace/epoch"
_ATTEMPTS: Final = 5
_SIZE_MAX: Final = 1_000_000
"""Characters of all pointers; a ConfigMap holds 1 MiB, with all else of it."""


class KubernetesPointers:
    """Implements JobGraphPointers."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client: Final = client

    def put(self, epoch: int, job_id: JobId, pointer: bytes) -> None:
        self._change(epoch, lambda data: data.update({job_id.hex(): pointer.decode()}))

    def read_all(self, epoch: int) -> dict[str, bytes]:
        # It is written even where nothing changes: this is what shuts earlier leaders out.
        data = self._change(epoch, lambda data: None)
        return {name: pointer.encode() for name, pointer in data.items()}

    def remove(self, epoch: int, job_id: JobId) -> None:
        self._change(epoch, lambda data: data.pop(job_id.hex(), None))

    def _change(self, epoch: int, change: Callable[[dict[str, str]], Any]) -> dict[str, str]:
        client = self._client
        place = client.place_of(client.map_name)
        for _ in range(_ATTEMPTS):
            found = client.read_map() or client.models.V1ConfigMap(
                metadata=client.metadata(client.map_name)
            )
            annotations: dict[str, str] = found.metadata.annotations or {}
            newest = int(annotations.get(_EPOCH, "0"))
            if newest > epoch:
                reason = f"the leader of epoch {newest} has read its jobs"
                raise LeadershipLostError(client.cluster, reason)
            data: dict[str, str] = found.data or {}
            change(data)
            if sum(len(name) + len(pointer) for name, pointer in data.items()) > _SIZE_MAX:
                raise CheckpointStorageError(
                    "write", place, "it would hold more than 1 MiB", "wait for the end of some jobs"
                )
            found.metadata.annotations = {**annotations, _EPOCH: str(epoch)}
            found.data = data
            try:
                client.write_map(found)
            except VersionConflictError:
                continue
            return data
        raise CheckpointStorageError("write", place, "others change it all the time", "try again")
