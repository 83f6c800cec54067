"""KubernetesLeader: stores the leader of a cluster in a Lease, replaced only if its version is unchanged.

KubernetesPointers stores the pointers to job graphs in a ConfigMap.

The Lease's `leaseTransitions` are the epoch. As everywhere, the observer's own clock decides who may lead, not a time
in the Lease. Source: Flink KubernetesLeaderElectionDriver; Kubernetes client-go LeaderElector.
"""

import math
from collections.abc import Callable
from typing import Any, Final

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.checkpoint.storage.metadata_key import MetadataKey
from headrace.cluster.high_availability.kubernetes.kubernetes_client import (
    KUBERNETES_LEASE_DURATION,
    KUBERNETES_RENEW_DEADLINE,
    KUBERNETES_RETRY_PERIOD,
    KubernetesClient,
    VersionConflictError,
)
from headrace.cluster.high_availability.leader_election_service import LeadershipLostError
from headrace.cluster.high_availability.leader_records import SealedLeaderRecord
from headrace.cluster.high_availability.lease import LeaderRecord, LeaseTerms
from headrace.core.config import Settings, default_text
from headrace.core.errors import ConfigurationError
from headrace.core.ids import JobId

_RECORD: Final = "headrace/leader"
_EPOCH: Final = "headrace/epoch"
_GONE: Final = "a process whose Lease was deleted"
_ATTEMPTS: Final = 5
_SIZE_MAX: Final = 1_000_000
"""Most characters of all pointers; a ConfigMap holds 1 MiB in all."""


class KubernetesLeader:
    """LeaderRecords in a Lease of Kubernetes."""

    def __init__(self, client: KubernetesClient, key: MetadataKey, terms: LeaseTerms) -> None:
        self._client: Final = client
        self._sealed: Final = SealedLeaderRecord(client.cluster, key)
        self._duration_s: Final = math.ceil(terms.lease_duration_ms / 1000)
        self._lease: Any = None
        """Lease as this process has last read or written it."""

    def newest(self) -> LeaderRecord | None:
        self._lease = lease = self._client.read_lease()
        if lease is None:
            # The next epoch exceeds every epoch in which the pointers were written; their writer may still
            # lead: it notices the loss at its next renewal.
            epoch = _epoch_of_pointers(self._client.read_map())
            return LeaderRecord(epoch, _GONE) if epoch else None
        content = (lease.metadata.annotations or {}).get(_RECORD, "")
        place = self._client.place_of(self._client.lease_name)
        return self._sealed.decode(content.encode(), _epoch_of(lease), place)

    def newest_epoch(self) -> int:
        return _epoch_of(self._client.read_lease())

    def take(self, record: LeaderRecord) -> bool:
        try:
            self._write(record)
        except VersionConflictError:
            return False
        return True

    def renew(self, record: LeaderRecord) -> None:
        try:
            self._write(record)
        except VersionConflictError:
            # Another process leads, or the answer to an earlier renewal was lost.
            self._lease = lease = self._client.read_lease()
            if _epoch_of(lease) != record.epoch:
                reason = f"its Lease is of epoch {_epoch_of(lease)}, or was deleted"
                raise LeadershipLostError(self._client.cluster, reason) from None
            place = self._client.place_of(self._client.lease_name)
            raise CheckpointStorageError("replace", place, "it has changed", "again") from None

    def doubt(self) -> str:
        """Return nothing: the state is unknown without a request to the API server."""
        return ""

    def _write(self, record: LeaderRecord) -> None:
        models = self._client.models
        lease = self._lease or models.V1Lease(
            metadata=self._client.metadata(self._client.lease_name)
        )
        lease.metadata.annotations = {
            **(lease.metadata.annotations or {}),
            _RECORD: self._sealed.encode(record).decode(),
        }
        lease.spec = models.V1LeaseSpec(
            holder_identity="" if record.is_released else record.holder,
            lease_duration_seconds=self._duration_s,
            lease_transitions=record.epoch,
        )
        self._lease = self._client.write_lease(lease)


def kubernetes_terms(settings: Settings) -> LeaseTerms:
    """Return the terms of the lease. ConfigurationError if one slow renewal would end a leadership."""
    lease = settings.get_option(KUBERNETES_LEASE_DURATION)
    period = settings.get_option(KUBERNETES_RETRY_PERIOD)
    # Flink lets a leader lead until the lease ends; another one may lead from the same moment on.
    deadline = min(settings.get_option(KUBERNETES_RENEW_DEADLINE), lease - period)
    if 2 * period > deadline:
        raise ConfigurationError(
            KUBERNETES_RETRY_PERIOD.key,
            default_text(period),
            f"it must be at most a third of {KUBERNETES_LEASE_DURATION.key}, and half of "
            f"{KUBERNETES_RENEW_DEADLINE.key}: one slow renewal must not end a leadership",
        )
    return LeaseTerms(
        lease.total_seconds() * 1000, deadline.total_seconds() * 1000, period.total_seconds() * 1000
    )


def _epoch_of(lease: Any) -> int:
    return 0 if lease is None or lease.spec is None else int(lease.spec.lease_transitions or 0)


def _epoch_of_pointers(config_map: Any) -> int:
    """Return the epoch of the last leader that has read or written the pointers; 0 if none has."""
    annotations = None if config_map is None else config_map.metadata.annotations
    return int((annotations or {}).get(_EPOCH, "0"))


class KubernetesPointers:
    """JobGraphPointers in a ConfigMap, which the newest leader that has read it owns.

    A leader writes its epoch into the ConfigMap when it reads the pointers. From then on, a write of an earlier leader
    conflicts with the version that it has seen, and it finds the later epoch. Source: Flink KubernetesStateHandleStore.
    """

    def __init__(self, client: KubernetesClient) -> None:
        self._client: Final = client

    def put(self, epoch: int, job_id: JobId, pointer: bytes) -> None:
        self._change(epoch, lambda data: data.update({job_id.hex(): pointer.decode()}))

    def read_all(self, epoch: int) -> dict[str, bytes]:
        # Written even without a change: this shuts out earlier leaders.
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
            newest = _epoch_of_pointers(found)
            if newest > epoch:
                reason = f"the leader of epoch {newest} has read its jobs"
                raise LeadershipLostError(client.cluster, reason)
            data: dict[str, str] = found.data or {}
            change(data)
            if sum(len(name) + len(pointer) for name, pointer in data.items()) > _SIZE_MAX:
                raise CheckpointStorageError(
                    "write",
                    place,
                    "it would hold more than 1 MiB",
                    "wait until some jobs have ended",
                )
            found.metadata.annotations = {**annotations, _EPOCH: str(epoch)}
            found.data = data
            try:
                client.write_map(found)
            except VersionConflictError:
                continue
            return data
        raise CheckpointStorageError(
            "write", place, "other processes keep changing it", "try again"
        )
