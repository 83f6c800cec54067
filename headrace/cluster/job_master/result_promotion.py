"""ResultPromotion: the JobMaster has the TaskManagers keep the persistent results of a job that has finished.

All parts of a data set or none: a part without the others is of no use to anybody, and would keep its TaskManager.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Final

from headrace.core.errors import HeadraceError
from headrace.core.ids import ClusterDataSetId, JobId, JobMasterId, ResourceId
from headrace.gateways.cluster_partitions import (
    ClusterPartition,
    ClusterPartitionReport,
)
from headrace.gateways.task_executor import TaskExecutorGateway
from headrace.rpc.errors import AskTimeoutError
from headrace.rpc.proxies import with_timeout

_LOG = logging.getLogger(__name__)
_TRIES: Final = 3
_TIMEOUT_MS: Final = 2_000.0


class ResultPromotion:
    """`gateways` are those of the TaskManagers that work for the job. Main thread of the JobMaster."""

    def __init__(
        self,
        job_id: JobId,
        job_master_id: JobMasterId,
        gateways: Mapping[ResourceId, TaskExecutorGateway],
    ) -> None:
        self._job_id: Final = job_id
        self._job_master_id: Final = job_master_id
        self._gateways: Final = gateways

    async def promote(self, promoted: Mapping[ResourceId, tuple[ClusterPartition, ...]]) -> None:
        """Have results kept beyond the job; where one TaskManager does not keep its own, the others drop theirs."""
        kept = await asyncio.gather(*(self._promote(*each) for each in promoted.items()))
        broken = {
            part.data_set
            for parts, is_kept in zip(promoted.values(), kept, strict=True)
            for part in parts
            if not is_kept
        }
        # Also of whoever did not answer in time: it may have heard all the same.
        await asyncio.gather(
            *(
                self._release(resource_id, broken)
                for resource_id, parts in promoted.items()
                if any(part.data_set in broken for part in parts)
            )
        )

    async def _promote(
        self, resource_id: ResourceId, partitions: tuple[ClusterPartition, ...]
    ) -> bool:
        report = await self._report_of(resource_id, partitions)
        if report is not None and set(partitions) <= set(report.partitions):
            return True
        _LOG.warning(
            "%s results of job %s, and what belongs to them, do not outlive it: TaskManager %s does not keep them",
            len(partitions), self._job_id, resource_id,
        )  # fmt: skip
        return False

    async def _report_of(
        self, resource_id: ResourceId, partitions: tuple[ClusterPartition, ...]
    ) -> ClusterPartitionReport | None:
        """What a TaskManager says it keeps, once it was asked to keep these; None where it is gone or silent."""
        gateway = self._gateways.get(resource_id)
        if gateway is None:
            return None
        gateway = with_timeout(gateway, _TIMEOUT_MS)
        for _ in range(_TRIES):
            try:
                return await gateway.promote_partitions(
                    self._job_id, self._job_master_id, partitions
                )
            except AskTimeoutError:
                continue
            except HeadraceError as error:
                _LOG.info("promoting results on %s failed: %s", resource_id, error)
                break
        return None

    async def _release(
        self, resource_id: ResourceId, data_sets: Collection[ClusterDataSetId]
    ) -> None:
        gateway = self._gateways.get(resource_id)
        if gateway is None:
            return
        try:
            await with_timeout(gateway, _TIMEOUT_MS).release_cluster_partitions(
                tuple(sorted(data_sets))
            )
        except HeadraceError as error:
            # The ResourceManager sees that the others have lost theirs, and has it released then.
            _LOG.info("%s did not release incomplete results: %s", resource_id, error)
