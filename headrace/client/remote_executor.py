"""RemoteExecutor: runs a program's jobs on a running cluster in another process, by address or as a session.

Source: Flink RemoteExecutor, AbstractSessionClusterExecutor.
"""

import logging
import threading
from typing import Final

import msgspec

from headrace.api.client.job_client import JobClient
from headrace.api.settings.job_artifacts import (
    python_files,
    with_carried_python_files,
    with_environment,
)
from headrace.client.cluster_descriptor import ClusterDescriptor
from headrace.client.rest_cluster_client import RestClusterClient
from headrace.core.config import Settings, check_values
from headrace.core.errors import HostError, ProgramError
from headrace.core.ids import ClusterDataSetId
from headrace.gateways.messages import DataSetInfo
from headrace.graph.job_graph import JobGraph
from headrace.graph.pipeline_options import PARALLELISM, PYTHON_EXECUTABLE

_LOG: Final = logging.getLogger(__name__)
_OF_DATAFRAMES: Final = "dataframe-"
"""Beginning of the names of coordinators that read or write DataFrames in the driver's Spark session."""


class RemoteDataFrameError(ProgramError):
    """Raised if a job has a DataFrame, which only the process that made it can read or write."""

    def __init__(self, operator: str, location: str) -> None:
        place = f" ({location})" if location else ""
        super().__init__(
            f"'{operator}'{place} is a DataFrame of this program's own Spark, which other clusters cannot reach: "
            "write it to files and read them with a FileSource, or run the program with its own cluster "
            "(execution.target: application)"
        )
        self.operator = operator


class RemoteExecutor:
    """Implements PipelineExecutor, under the name `remote`; thread-safe."""

    name = "remote"

    def __init__(self, settings: Settings) -> None:
        self._settings: Final = settings
        # Two threads of a program may submit their first jobs at once.
        self._lock: Final = threading.Lock()
        self._client: RestClusterClient | None = None
        self._parallelism: int | None = None
        self._is_closed = False

    def submit(self, job_graph: JobGraph) -> JobClient:
        """Submit a job and return its client once the cluster has accepted it."""
        check_values(job_graph.settings)
        refuse_dataframes(job_graph)
        job_graph = with_environment(job_graph)
        files = python_files(Settings(job_graph.settings))
        cluster = self._cluster()
        if files:
            job_graph = with_carried_python_files(job_graph, files)
        executable = Settings(job_graph.settings).get_option(PYTHON_EXECUTABLE)
        if (
            executable
            and not job_graph.python_executable
            and executable != _interpreter_of(Settings(cluster.cluster_settings()))
        ):
            job_graph = msgspec.structs.replace(job_graph, python_executable=executable)
        client = cluster.submit_job(job_graph)
        _LOG.info(
            "job '%s' (%s) is submitted to %s", job_graph.name, job_graph.job_id, cluster.address
        )
        return client

    def default_parallelism(self) -> int:
        """Return the cluster's `parallelism.default`, or the number of currently free slots; at least 1.

        Slots of other jobs do not count, because the job would hold its own slots while it waits for them.
        """
        if self._parallelism is None:
            cluster = self._cluster()
            said = Settings(cluster.cluster_settings()).get_option(PARALLELISM)
            self._parallelism = said if said > 0 else max(1, cluster.slots_available())
        return self._parallelism

    def known_parallelism(self) -> int | None:
        """Return the default parallelism if the cluster was asked before, else None."""
        return self._parallelism

    def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        return self._cluster().list_completed_cluster_datasets()

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        self._cluster().invalidate_cluster_dataset(data_set)

    def serves(self, settings: Settings) -> bool:
        """Return whether these settings name the same cluster, and the cluster is not known to have ended.

        A notebook may outlive a session and use several; a restarted session has another address and token.
        """
        with self._lock:
            is_over = self._is_closed or (self._client is not None and self._client.has_ended())
        return not is_over and ClusterDescriptor(settings).means_same_cluster(self._settings)

    def close(self) -> None:
        """Disconnect from the cluster, which continues the jobs. Idempotent."""
        with self._lock:
            self._is_closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _cluster(self) -> RestClusterClient:
        with self._lock:
            if self._is_closed:
                raise HostError("the executor has been closed")
            if self._client is None:
                self._client = ClusterDescriptor(self._settings).retrieve()
            return self._client


def _interpreter_of(cluster: Settings) -> str:
    """Return the interpreter of a cluster's settings; empty if they name none."""
    return cluster.to_dict().get("spark.pyspark.python") or cluster.get_option(PYTHON_EXECUTABLE)


def refuse_dataframes(graph: JobGraph) -> None:
    """Raise RemoteDataFrameError if a job reads or writes a DataFrame."""
    for vertex in graph.vertices:
        for operator in vertex.operators:
            if operator.coordinator.startswith(_OF_DATAFRAMES):
                raise RemoteDataFrameError(operator.name, operator.location)
