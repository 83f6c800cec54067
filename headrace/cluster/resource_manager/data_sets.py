"""DataSets: what the ResourceManager does about results that outlive their jobs: learns, lists and has them released.

Main thread of the ResourceManager. Source: Flink ResourceManager, whose partition tracker releases by RPC as well.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from headrace.cluster.resource_manager.cluster_partitions import (
    ClusterPartitionTracker,
    DataSetsToRelease,
)
from headrace.core.ids import ResourceId
from headrace.gateways.cluster_partitions import ClusterDataSetId, ClusterPartitionReport
from headrace.gateways.task_executor import TaskExecutorGateway
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.errors import RpcError

_LOG = logging.getLogger(__name__)


class DataSets:
    """`gateway_of` finds a TaskManager that is registered, or None."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        gateway_of: Callable[[ResourceId], TaskExecutorGateway | None],
    ) -> None:
        self._endpoint: Final = endpoint
        self._gateway_of: Final = gateway_of
        self.tracker: Final = ClusterPartitionTracker()
        """To be asked; changes come by the methods here."""

    def reported(self, resource_id: ResourceId, report: ClusterPartitionReport) -> None:
        """A TaskManager says what it has."""
        self._spawn(self.tracker.reported(resource_id, report))

    def lost(self, resource_id: ResourceId) -> None:
        """A TaskManager is gone."""
        self._spawn(self.tracker.lost(resource_id))

    async def release(self, data_set: ClusterDataSetId) -> None:
        """Have a data set deleted, and wait for the answers; who does not answer is told again when it reports."""
        await self._release(self.tracker.release([data_set]))

    def _spawn(self, to_release: DataSetsToRelease) -> None:
        if to_release:
            self._endpoint.spawn(self._release(to_release), "release cluster partitions")

    async def _release(self, to_release: DataSetsToRelease) -> None:
        await asyncio.gather(*(self._tell(*each) for each in to_release.items()))

    async def _tell(self, resource_id: ResourceId, data_sets: Iterable[ClusterDataSetId]) -> None:
        gateway = self._gateway_of(resource_id)
        if gateway is None:
            return
        try:
            report = await gateway.release_cluster_partitions(tuple(data_sets))
        except RpcError as error:
            _LOG.info("%s did not release what it was asked to: %s", resource_id, error)
        else:
            # Only of one that is still there: an answer may come behind its loss.
            if self._gateway_of(resource_id) is gateway:
                self.reported(resource_id, report)
