"""ClusterPartitionRelease: learns of results that outlive their jobs, lists them and has them released.

A data set can stay incomplete: its JobMaster ended amid promoting, or a TaskManager before it could tell. It is
released once nobody led its job for `resourcemanager.job.timeout`; till then what is missing may be on its way. Main
thread of the ResourceManager. Source: Flink ResourceManager, whose partition tracker releases by RPC as well.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from headrace.cluster.resource_manager.cluster_partition_tracker import (
    ClusterPartitionTracker,
    DataSetsToRelease,
)
from headrace.cluster.resource_manager.options import JOB_TIMEOUT
from headrace.core.errors import HeadraceError
from headrace.core.ids import ClusterDataSetId, JobId, ResourceId
from headrace.gateways.messages import ClusterPartitionReport
from headrace.gateways.task_executor import TaskExecutorGateway
from headrace.rpc.endpoint import RpcEndpoint

_LOG = logging.getLogger(__name__)


class ClusterPartitionRelease:
    """`gateway_of` finds a TaskManager that is registered, or None; `is_led` knows whether a job has a JobMaster."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        gateway_of: Callable[[ResourceId], TaskExecutorGateway | None],
        is_led: Callable[[JobId], bool],
    ) -> None:
        self._endpoint: Final = endpoint
        self._gateway_of: Final = gateway_of
        self._is_led: Final = is_led
        # Incomplete ones that are going to be looked at again.
        self._watched: set[ClusterDataSetId] = set()
        self.tracker: Final = ClusterPartitionTracker()
        """To be asked; changes come by the methods here."""

    def reported(self, resource_id: ResourceId, report: ClusterPartitionReport) -> None:
        """A TaskManager says what it has."""
        self._spawn(self.tracker.reported(resource_id, report))
        for data_set in self.tracker.incomplete():
            if data_set not in self._watched:
                self._watched.add(data_set)
                self._look_later(data_set)

    def registered(self, resource_id: ResourceId) -> None:
        """A TaskManager has registered, again perhaps."""
        self.tracker.registered(resource_id)

    def lost(self, resource_id: ResourceId) -> None:
        """A TaskManager is gone."""
        self._spawn(self.tracker.lost(resource_id))

    async def release(self, data_set: ClusterDataSetId) -> None:
        """Have a data set deleted, and wait for the answers; who does not answer is told again when it reports."""
        await self._release(self.tracker.release([data_set]))

    def _look_later(self, data_set: ClusterDataSetId) -> None:
        was_led = self._is_led(data_set.job_id)
        timeout_ms = self._endpoint.settings.duration_ms(JOB_TIMEOUT)
        self._endpoint.schedule_run_async(timeout_ms, lambda: self._look(data_set, was_led))

    def _look(self, data_set: ClusterDataSetId, was_led: bool) -> None:
        is_incomplete = data_set in self.tracker.incomplete()
        if is_incomplete and (was_led or self._is_led(data_set.job_id)):
            self._look_later(data_set)
            return
        self._watched.discard(data_set)
        if is_incomplete:
            _LOG.info("parts of data set %s will not come any more: it is released", data_set)
            self._spawn(self.tracker.release([data_set]))

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
        except HeadraceError as error:
            _LOG.info("%s did not release what it was asked to: %s", resource_id, error)
        else:
            # Only of one that is still there: an answer may come behind its loss.
            if self._gateway_of(resource_id) is gateway:
                self.reported(resource_id, report)
