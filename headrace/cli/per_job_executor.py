"""PerJobExecutor: starts a cluster for each job of a program, in a process of its own that ends with the job.

The graph is made in this process, which needs neither Java nor Spark.
Source: Flink AbstractJobClusterExecutor, YarnJobClusterExecutor.
"""

import contextlib
import os
import sys
import threading
from pathlib import Path
from typing import Final

from headrace.api.client.job_client import JobClient
from headrace.api.executors import ATTACHED, PER_JOB, TARGET
from headrace.api.settings.job_artifacts import python_files, with_environment, with_python_files
from headrace.cli.daemon.daemon_cluster_descriptor import DaemonClusterDescriptor
from headrace.client.remote_executor import refuse_dataframes
from headrace.client.rest_cluster_client import RestClusterClient
from headrace.core.config import Settings, check_values
from headrace.core.errors import HeadraceError, HostError
from headrace.core.ids import ClusterDataSetId
from headrace.gateways.messages import DataSetInfo
from headrace.graph.job_graph import JobGraph
from headrace.graph.pipeline_options import PARALLELISM, PYTHON_FILES
from headrace.spark.options import MASTER, SLOT_COUNT


class PerJobExecutor:
    """Implements PipelineExecutor, under the name `per-job`; thread-safe."""

    name = PER_JOB
    create_cluster_descriptor = DaemonClusterDescriptor

    def __init__(self, settings: Settings) -> None:
        self._settings: Final = settings
        # Two threads of a program may submit jobs at once.
        self._lock: Final = threading.Lock()
        self._clusters: list[tuple[RestClusterClient, JobClient]] = []
        self._is_closed = False

    def submit(self, job_graph: JobGraph) -> JobClient:
        """Start a cluster, submit the job to it, and return the job's client.

        DaemonFailedError if the cluster does not start; if the job is refused, nothing of the cluster is left.
        ConfigurationError for high availability.
        """
        check_values(job_graph.settings)
        refuse_dataframes(job_graph)
        job_graph = with_environment(job_graph)
        settings = {**job_graph.settings, **self._settings.to_dict()}
        settings.pop(TARGET.key, None)
        files = python_files(Settings(settings))
        if files:
            # As absolute paths: the program may have changed its working folder since it named them.
            job_graph = with_python_files(job_graph, files)
            settings[PYTHON_FILES.key] = job_graph.settings[PYTHON_FILES.key]
        with self._lock:
            if self._is_closed:
                raise HostError("the executor has been closed")
        descriptor = DaemonClusterDescriptor(Settings(settings))
        name = Path(sys.argv[0]).stem or "job"
        cluster, client = descriptor.deploy_job_cluster(name, job_graph)
        with self._lock:
            self._clusters.append((cluster, client))
        return client

    def default_parallelism(self) -> int:
        """Return `parallelism.default`, or the slots of a cluster on this machine; 1 if a master is given."""
        for option in (PARALLELISM, SLOT_COUNT):
            if self._settings.get_option(option) > 0:
                return self._settings.get_option(option)
        return 1 if self._settings.get_option(MASTER) else os.cpu_count() or 1

    def known_parallelism(self) -> int | None:
        """Return the default parallelism, which is known without a cluster."""
        return self.default_parallelism()

    def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        """Return no data sets, because they end with the cluster of their job."""
        return ()

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        """Do nothing, because data sets end with the cluster of their job."""

    def close(self) -> None:
        """End the clusters whose jobs have ended; others end with their jobs. Idempotent."""
        with self._lock:
            self._is_closed = True
            clusters, self._clusters = self._clusters, []
        for cluster, client in clusters:
            with contextlib.suppress(HeadraceError):
                # A cluster that is not awaited ends by itself, and may have ended already.
                is_attached = self._settings.get_option(ATTACHED)
                if is_attached and cluster.get_job_status(client.get_job_id()).is_terminal_state():
                    cluster.shut_down_cluster()
            cluster.close()
