"""DataSetLookup: where data sets of earlier jobs lie, asked of the ResourceManager on behalf of one job.

Main thread of the JobMaster. Source: Flink JobMasterPartitionTracker.getClusterPartitionShuffleDescriptors.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from headrace.cluster.error_reports import error_info_of
from headrace.cluster.job_master.cluster_inputs import DataSetPlaces
from headrace.cluster.job_master.options import PARTITION_REGISTER_TIMEOUT
from headrace.cluster.job_master.resource_manager_connection import ResourceManagerConnection
from headrace.core.config import Settings
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.core.ids import ClusterDataSetId
from headrace.core.shuffle_descriptors import ShuffleDescriptor
from headrace.gateways.messages import ErrorInfo
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.proxies import with_timeout

_LOG = logging.getLogger(__name__)
_ASK_TIMEOUT_MS: Final = 2_000.0
_RETRY_MS: Final = 200.0


class DataSetLookupOwner(Protocol):
    """Who hears the answers; the job's Scheduler."""

    def inputs_found(self, places: DataSetPlaces, version: int) -> None:
        """All answers."""
        ...

    def lookup_failed(self, error: ErrorInfo, version: int) -> None:
        """There is no answer."""
        ...


class DataSetLookupError(HeadraceError):
    """The ResourceManager did not say in time where a data set lies."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, data_set_text: str, timeout_ms: float) -> None:
        super().__init__(
            f"the ResourceManager did not say within {timeout_ms / 1000:g} s where the cached data set "
            f"{data_set_text} lies ({PARTITION_REGISTER_TIMEOUT.key})"
        )
        self.data_set_text = data_set_text
        self.timeout_ms = timeout_ms


class DataSetLookup:
    """`settings` are the job's: an answer is waited for as long as that of the shuffle service."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        owner: DataSetLookupOwner,
        resource_manager: ResourceManagerConnection,
        settings: Settings,
    ) -> None:
        self._endpoint: Final = endpoint
        self._owner: Final = owner
        self._resource_manager: Final = resource_manager
        self._timeout_ms: Final = settings.duration_ms(PARTITION_REGISTER_TIMEOUT)

    def find(self, data_sets: Sequence[ClusterDataSetId], version: int) -> None:
        """Ask for all of them; the owner hears it later."""
        self._endpoint.spawn(self._find_all(data_sets, version), "find cached data sets")

    def release(self, data_set: ClusterDataSetId) -> None:
        """Have a data set given up."""
        self._endpoint.spawn(self._release(data_set), "release a cached data set")

    async def _find_all(self, data_sets: Sequence[ClusterDataSetId], version: int) -> None:
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                found = await asyncio.gather(*(self._find(each) for each in data_sets))
        except TimeoutError:
            named = ", ".join(map(str, data_sets))
            error = DataSetLookupError(named, self._timeout_ms)
            self._owner.lookup_failed(error_info_of(error), version)
        else:
            self._owner.inputs_found(dict(zip(data_sets, found, strict=True)), version)

    async def _find(self, data_set: ClusterDataSetId) -> tuple[ShuffleDescriptor, ...]:
        while True:
            gateway = self._resource_manager.link.gateway
            if gateway is not None:
                try:
                    asked = with_timeout(gateway, _ASK_TIMEOUT_MS)
                    return await asked.request_cluster_partitions(data_set)
                except HeadraceError as error:
                    _LOG.info("the ResourceManager does not find %s: %s", data_set, error)
            await asyncio.sleep(_RETRY_MS / 1000)

    async def _release(self, data_set: ClusterDataSetId) -> None:
        gateway = self._resource_manager.link.gateway
        if gateway is None:
            return
        try:
            await with_timeout(gateway, _ASK_TIMEOUT_MS).release_cluster_partitions(data_set)
        except HeadraceError as error:
            _LOG.info("the ResourceManager was not told to release %s: %s", data_set, error)
