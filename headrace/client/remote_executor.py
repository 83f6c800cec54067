"""RemoteExecutor: runs a program's jobs on a cluster that runs already, in another process.

Source: Flink RemoteExecutor, AbstractSessionClusterExecutor.
"""

import logging
import threading
from pathlib import Path
from typing import Final

from headrace.api.client.job_client import JobClient
from headrace.client.rest_cluster_client import RestClusterClient
from headrace.core.config import ConfigOption, Settings, check_values, parse_ports
from headrace.core.errors import ConfigurationError, HostError, ProgramError
from headrace.core.ids import ClusterDataSetId
from headrace.gateways.messages import DataSetInfo
from headrace.graph.job_graph import JobGraph
from headrace.graph.pipeline_options import PARALLELISM
from headrace.rest.connections import FoundConnection, find_connection, read_connection
from headrace.rest.options import REST_ADDRESS, REST_PORT

CONNECTION_FILE: Final = ConfigOption(
    "headrace.rest.connection-file",
    str,
    "",
    "File with address, token and certificate of the cluster to which `execution.target: remote` submits. Unset: that "
    "of `rest.address` and `rest.port` among this user's own, or the only one of this machine.",
)
_LOG: Final = logging.getLogger(__name__)
_DEFAULT_PORT: Final = 8081
_OF_DATAFRAMES: Final = "dataframe-"
"""Beginning of the names of coordinators that read or write DataFrames in the driver's Spark session."""


class RemoteDataFrameError(ProgramError):
    """A job has a DataFrame, which only the process that made it can read or write."""

    def __init__(self, operator: str, location: str) -> None:
        place = f" ({location})" if location else ""
        super().__init__(
            f"'{operator}'{place} is a DataFrame of this program's own Spark, which no other cluster reaches: write it "
            "to files and read those with a FileSource, or run the program with its own cluster "
            "(execution.target: spark)"
        )
        self.operator = operator


class RemoteExecutor:
    """Implements PipelineExecutor, under the name `remote`; thread-safe."""

    name: Final = "remote"

    def __init__(self, settings: Settings) -> None:
        self._settings: Final = settings
        # Two threads of a program may submit their first jobs at once.
        self._lock: Final = threading.Lock()
        self._client: RestClusterClient | None = None
        self._parallelism: int | None = None
        self._is_closed = False

    def submit(self, job_graph: JobGraph) -> JobClient:
        """Submit a job and return its handle once the cluster has taken it."""
        check_values(job_graph.settings)
        _refuse_dataframes(job_graph)
        cluster = self._cluster()
        client = cluster.submit_job(job_graph)
        _LOG.info(
            "job '%s' (%s) is submitted to %s", job_graph.name, job_graph.job_id, cluster.address
        )
        return client

    def default_parallelism(self) -> int:
        """Return the cluster's `parallelism.default`, or the number of slots that it has now; at least 1."""
        if self._parallelism is None:
            cluster = self._cluster()
            said = Settings(cluster.cluster_settings()).get_option(PARALLELISM)
            self._parallelism = said if said > 0 else max(1, cluster.slots_total())
        return self._parallelism

    def known_parallelism(self) -> int | None:
        """Return the default parallelism once the cluster was asked."""
        return self._parallelism

    def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        return self._cluster().list_completed_cluster_datasets()

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        self._cluster().invalidate_cluster_dataset(data_set)

    def close(self) -> None:
        """Leave the cluster, which goes on with the jobs. Idempotent."""
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
                found = connection_of(self._settings)
                self._client = RestClusterClient.of(found, self._settings)
            return self._client


def connection_of(settings: Settings) -> FoundConnection:
    """Return the connection to the cluster that the settings name. RestError, ConfigurationError."""
    file = settings.get_option(CONNECTION_FILE)
    if file:
        path = Path(file).expanduser()
        try:
            return FoundConnection(read_connection(path), str(path), path)
        except FileNotFoundError as error:
            raise ConfigurationError(CONNECTION_FILE.key, file, "there is no such file") from error
    return find_connection(address_of(settings), _LOG.info)


def address_of(settings: Settings) -> str | None:
    """Return `host:port` or the URL that the settings name, None where they name none; `rest.address` may be either."""
    host = settings.get_option(REST_ADDRESS)
    if host is not None and ("://" in host or "]:" in host or host.count(":") == 1):
        return host
    if host is None and not settings.is_set(REST_PORT):
        return None
    port = _DEFAULT_PORT
    if settings.is_set(REST_PORT):
        ports = list(parse_ports(REST_PORT.key, settings.get_option(REST_PORT)))
        if len(ports) != 1:
            raise ConfigurationError(
                REST_PORT.key,
                settings.get_option(REST_PORT),
                "a client needs the one port at which the cluster listens",
            )
        port = ports[0]
    name = host or "127.0.0.1"
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _refuse_dataframes(graph: JobGraph) -> None:
    for vertex in graph.vertices:
        for operator in vertex.operators:
            if operator.coordinator.startswith(_OF_DATAFRAMES):
                raise RemoteDataFrameError(operator.name, operator.location)
