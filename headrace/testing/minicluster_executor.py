"""MiniClusterExecutor: runs a program's jobs on a MiniCluster of this process."""

from collections.abc import Mapping

from headrace.api.client.job_client import JobClient
from headrace.api.executors import set_active_executor
from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorFactories
from headrace.cluster.minicluster import MiniCluster
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import ClusterDataSetId
from headrace.core.randomness import system_random
from headrace.gateways.ended_job import EndedJob
from headrace.gateways.messages import DataSetInfo
from headrace.graph.job_graph import JobGraph
from headrace.rest.history.job_history import JobHistory
from headrace.rest.history.options import ARCHIVE_DIRECTORY
from headrace.rest.options import REST_ENABLED
from headrace.rest.server import ControlPlane, RestServer, start_rest_server


class MiniClusterExecutor:
    """Implements PipelineExecutor. As a context manager it is the active executor of the process.

    REST is served where the settings say `rest.enabled`, and jobs are archived where they name a folder for it.

    with MiniClusterExecutor(slot_count=2):
        env.execute()
    """

    name = "minicluster"

    def __init__(
        self,
        *,
        slot_count: int = 2,
        settings: Mapping[str, str] | None = None,
        coordinator_factories: CoordinatorFactories | None = None,
    ) -> None:
        self._settings = dict(settings or {})
        self._rest: RestServer | None = None
        self._history: JobHistory | None = None
        self.cluster = MiniCluster(
            task_manager_count=slot_count,
            settings=settings,
            coordinator_factories=coordinator_factories,
            on_job_ended=self._job_ended,
        )

    def __enter__(self) -> "MiniClusterExecutor":
        self.cluster.start()
        history = None
        if not self._settings.keys().isdisjoint((REST_ENABLED.key, ARCHIVE_DIRECTORY.key)):
            history = JobHistory(Settings(self._settings), SystemClock(), system_random())
            history.watch(self.cluster.handle.dispatcher, self.cluster.handle.loop)
        self._history = history
        # Programs are tested by the dozen: each one's port would be one more that others on the host could try.
        if REST_ENABLED.key in self._settings:
            handle = self.cluster.handle
            self._rest = start_rest_server(
                ControlPlane(
                    handle.dispatcher,
                    handle.resource_manager,
                    handle.loop,
                    None if history is None else history.metrics_of,
                    handle.blob_server,
                ),
                Settings(self._settings),
                SystemClock(),
                name=self.name,
            )
        set_active_executor(self)
        return self

    def __exit__(self, *_: object) -> None:
        set_active_executor(None)
        self.close()

    @property
    def rest_address(self) -> str:
        """Return where REST is served, empty where it is not."""
        return "" if self._rest is None else self._rest.address

    def submit(self, job_graph: JobGraph) -> JobClient:
        handle = self.cluster.submit(job_graph)
        return JobClient(job_graph.job_id, handle.dispatcher, handle.loop)

    def default_parallelism(self) -> int:
        """Return the number of all slots."""
        return self.cluster.slot_count

    def known_parallelism(self) -> int:
        return self.default_parallelism()

    def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        return self.cluster.handle.list_data_sets()

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        self.cluster.handle.release_data_set(data_set)

    def close(self) -> None:
        rest, self._rest = self._rest, None
        if rest is not None:
            rest.close()
        history = self._history
        if history is not None:
            history.stop_watching()
        try:
            self.cluster.close()
        finally:
            # Jobs that ended with the cluster are archived too.
            self._history = None
            if history is not None:
                history.close()

    def _job_ended(self, job: EndedJob) -> None:
        if self._history is not None:
            self._history.job_ended(job)
