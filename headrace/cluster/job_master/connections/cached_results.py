"""Handling of results that outlive a job (cluster partitions) in its JobMaster.

DataSetLookup asks the ResourceManager for the locations of earlier jobs' data sets that a job reads. ResultPromotion
lets the TaskManagers keep the persistent results of a job that has finished: all parts of a data set or none, because a
part without the others is useless, and would keep its TaskManager alive. Both run on the JobMaster's main thread.
Source: Flink JobMasterPartitionTracker.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from headrace.cluster.error_reports import error_info_of
from headrace.cluster.job_master.connections.options import PARTITION_REGISTER_TIMEOUT
from headrace.cluster.job_master.connections.resource_manager_connection import (
    ResourceManagerConnection,
)
from headrace.cluster.job_master.results.cached_inputs import DataSetPlaces
from headrace.core.config import Settings
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.core.ids import ClusterDataSetId, JobId, JobMasterId, ResourceId
from headrace.core.shuffle_descriptors import ShuffleDescriptor
from headrace.gateways.messages import (
    ClusterPartition,
    ClusterPartitionReport,
    ErrorInfo,
)
from headrace.gateways.task_executor import TaskExecutorGateway
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.errors import AskTimeoutError
from headrace.rpc.proxies import with_timeout

_LOG = logging.getLogger(__name__)
_ASK_TIMEOUT_MS: Final = 2_000.0
_RETRY_MS: Final = 200.0
_PROMOTION_TRIES: Final = 3

OnFound = Callable[[DataSetPlaces, int], None]
OnLookupFailed = Callable[[ErrorInfo, int], None]


class DataSetLookupError(HeadraceError):
    """The ResourceManager did not return the location of a data set in time."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, data_set_text: str, timeout_ms: float) -> None:
        super().__init__(
            f"the ResourceManager did not return within {timeout_ms / 1000:g} s the location of the cached data set "
            f"{data_set_text} ({PARTITION_REGISTER_TIMEOUT.key})"
        )
        self.data_set_text = data_set_text
        self.timeout_ms = timeout_ms


class DataSetLookup:
    """Finds data sets for one JobMaster. `settings` are the job's; the time-out is that of the shuffle master."""

    def __init__(
        self, endpoint: RpcEndpoint, resource_manager: ResourceManagerConnection, settings: Settings
    ) -> None:
        self._endpoint: Final = endpoint
        self._resource_manager: Final = resource_manager
        self._timeout_ms: Final = settings.duration_ms(PARTITION_REGISTER_TIMEOUT)

    def find(
        self,
        data_sets: Sequence[ClusterDataSetId],
        version: int,
        on_found: OnFound,
        on_failed: OnLookupFailed,
    ) -> None:
        """Find all data sets, then call `on_found(places, version)` or `on_failed(error, version)`."""
        self._endpoint.spawn(
            self._find_all(data_sets, version, on_found, on_failed), "find cached data sets"
        )

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        """Tell the cluster to drop a data set that cannot be read."""
        self._endpoint.spawn(self._release(data_set), "release a cached data set")

    async def _find_all(
        self,
        data_sets: Sequence[ClusterDataSetId],
        version: int,
        on_found: OnFound,
        on_failed: OnLookupFailed,
    ) -> None:
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                found = await asyncio.gather(*(self._find(each) for each in data_sets))
        except TimeoutError:
            named = ", ".join(map(str, data_sets))
            error = DataSetLookupError(named, self._timeout_ms)
            on_failed(error_info_of(error), version)
        else:
            on_found(dict(zip(data_sets, found, strict=True)), version)

    async def _find(self, data_set: ClusterDataSetId) -> tuple[ShuffleDescriptor, ...]:
        while True:
            gateway = self._resource_manager.link.gateway
            if gateway is not None:
                try:
                    asked = with_timeout(gateway, _ASK_TIMEOUT_MS)
                    return await asked.request_cluster_partitions(data_set)
                except HeadraceError as error:
                    _LOG.info("the ResourceManager could not find %s: %s", data_set, error)
            await asyncio.sleep(_RETRY_MS / 1000)

    async def _release(self, data_set: ClusterDataSetId) -> None:
        gateway = self._resource_manager.link.gateway
        if gateway is None:
            return
        try:
            await with_timeout(gateway, _ASK_TIMEOUT_MS).release_cluster_partitions(data_set)
        except HeadraceError as error:
            _LOG.info("could not tell the ResourceManager to release %s: %s", data_set, error)


class ResultPromotion:
    """Promotes the results of one job. `gateways` are those of the TaskManagers that work for the job."""

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
        """Keep results beyond the job; if one TaskManager does not keep its part, the others drop theirs."""
        kept = await asyncio.gather(*(self._promote(*each) for each in promoted.items()))
        broken = {
            part.data_set
            for parts, is_kept in zip(promoted.values(), kept, strict=True)
            for part in parts
            if not is_kept
        }
        # Also on TaskManagers that did not answer in time: they may have received the call.
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
            "%s results of job %s are lost with it, and so are their cached streams: TaskManager %s does not keep them",
            len(partitions), self._job_id, resource_id,
        )  # fmt: skip
        return False

    async def _report_of(
        self, resource_id: ResourceId, partitions: tuple[ClusterPartition, ...]
    ) -> ClusterPartitionReport | None:
        """Ask a TaskManager to keep `partitions` and return its report; None if it is gone or does not answer."""
        gateway = self._gateways.get(resource_id)
        if gateway is None:
            return None
        gateway = with_timeout(gateway, _ASK_TIMEOUT_MS)
        for _ in range(_PROMOTION_TRIES):
            try:
                return await gateway.promote_partitions(
                    self._job_id, self._job_master_id, partitions
                )
            except AskTimeoutError:
                continue
            except HeadraceError as error:
                _LOG.info("could not promote results on %s: %s", resource_id, error)
                break
        return None

    async def _release(
        self, resource_id: ResourceId, data_sets: Collection[ClusterDataSetId]
    ) -> None:
        gateway = self._gateways.get(resource_id)
        if gateway is None:
            return
        try:
            await with_timeout(gateway, _ASK_TIMEOUT_MS).release_cluster_partitions(
                tuple(sorted(data_sets))
            )
        except HeadraceError as error:
            # The ResourceManager notices that the other parts are gone, and lets it be released then.
            _LOG.info("%s did not release incomplete results: %s", resource_id, error)
