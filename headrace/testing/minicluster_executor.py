"""MiniClusterExecutor: runs a program's jobs on a MiniCluster of this process."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from headrace.api.client.job_client import JobClient
from headrace.api.executors import set_active_executor
from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorFactories
from headrace.cluster.minicluster import MiniCluster
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import ClusterDataSetId
from headrace.core.process.log_files import LOG_DIR
from headrace.core.randomness import system_random
from headrace.gateways.ended_job import EndedJob
from headrace.gateways.messages import DataSetInfo
from headrace.graph.job_graph import JobGraph
from headrace.rest.cluster_view import ControlPlane
from headrace.rest.history.options import ARCHIVE_DIRECTORY
from headrace.rest.options import REST_ENABLED
from headrace.rest.web_monitor import WebMonitor


class MiniClusterExecutor:
    """Implements PipelineExecutor. As a context manager it is the active executor of the process.

    REST is served if `rest.enabled` is set, and jobs are archived if the settings name a folder for it. The log of a
    cluster with REST is deleted with it, unless `env.log.dir` names a folder.

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
        self._web_monitor: WebMonitor | None = None
        self._log_folder: Path | None = None
        self.cluster = MiniCluster(
            task_manager_count=slot_count,
            settings=settings,
            coordinator_factories=coordinator_factories,
            on_job_ended=self._job_ended,
        )

    def __enter__(self) -> "MiniClusterExecutor":
        # Programs are tested by the dozen: each one's port would be one more that others on the host could try.
        settings = Settings({REST_ENABLED.key: "false"} | self._settings)
        if settings.get_option(REST_ENABLED) and not settings.get_option(LOG_DIR):
            self._log_folder = Path(tempfile.mkdtemp(prefix="headrace-logs-"))
        try:
            self.cluster.start(self._log_folder)
        except BaseException:
            self._remove_log()
            raise
        if not self._settings.keys().isdisjoint((REST_ENABLED.key, ARCHIVE_DIRECTORY.key)):
            self._web_monitor = WebMonitor(settings, SystemClock(), system_random())
            handle = self.cluster.handle
            self._web_monitor.start(
                ControlPlane(
                    handle.dispatcher,
                    handle.resource_manager,
                    handle.loop,
                    blob_server=handle.blob_server,
                    log_folder=handle.log_folder,
                ),
                name=self.name,
            )
        set_active_executor(self)
        return self

    def __exit__(self, *_: object) -> None:
        set_active_executor(None)
        self.close()

    @property
    def rest_address(self) -> str:
        """Return the address of REST; empty if it is not served."""
        server = None if self._web_monitor is None else self._web_monitor.server
        return "" if server is None else server.address

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
        web_monitor = self._web_monitor
        try:
            if web_monitor is not None:
                web_monitor.leave()
            self.cluster.close()
        finally:
            self._web_monitor = None
            if web_monitor is not None:
                web_monitor.close()
            self._remove_log()

    def _remove_log(self) -> None:
        folder, self._log_folder = self._log_folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _job_ended(self, job: EndedJob) -> None:
        if self._web_monitor is not None:
            self._web_monitor.job_ended(job)
