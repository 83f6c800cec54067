"""ClusterDescriptor: finds, starts and ends clusters; ClusterClientFactory makes the one that `execution.target` needs.

Source: Flink ClusterDescriptor, ClusterClientFactory, ClusterClientProvider, StandaloneClusterDescriptor.
"""

import logging
from pathlib import Path
from typing import Final

from headrace.api.client.job_client import JobClient
from headrace.api.executors import ENTRY_POINT_GROUP, PER_JOB, REMOTE, SESSION, TARGET
from headrace.client.deployed_cluster import DeployedCluster
from headrace.client.program import Program
from headrace.client.rest_cluster_client import RestClusterClient
from headrace.core.config import Settings
from headrace.core.entry_points import load_entry_point
from headrace.core.errors import ConfigurationError
from headrace.graph.job_graph import JobGraph
from headrace.rest.home.connections import (
    FoundConnection,
    address_of,
    connection_in,
    find_connection,
    find_session,
)
from headrace.rest.options import CONNECTION_FILE, SESSION_NAME

_STARTER: Final = PER_JOB
"""Executor that starts clusters; its host also starts sessions and applications."""
_LOG: Final = logging.getLogger(__name__)


class ClusterDescriptor:
    """Finds running clusters, and ends them; the descriptors of hosts also start clusters.

    After a failed start nothing of the cluster is left.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings: Final = settings

    def deploy_session_cluster(
        self, name: str, *, is_standby: bool = False, is_supervised: bool = False
    ) -> DeployedCluster:
        """Start a session of this name, and return it once it serves clients, or waits behind a leader."""
        raise _cannot_start()

    def deploy_application_cluster(
        self,
        program: Program,
        *,
        is_standby: bool = False,
        is_supervised: bool = False,
    ) -> DeployedCluster:
        """Start a program with its own cluster; return the cluster once its first job was accepted, or it stands by."""
        raise _cannot_start()

    def deploy_job_cluster(
        self, name: str, job_graph: JobGraph
    ) -> tuple[RestClusterClient, JobClient]:
        """Start a cluster for a job, which ends with it; return clients of both once the job was accepted."""
        raise _cannot_start()

    def retrieve(self, cluster_id: str | None = None) -> RestClusterClient:
        """Return a client of a running cluster: the session of this name, or the one that the settings name.

        If the settings name only an election, this is its leader. Raises NoClusterError, NoSuchClusterError,
        SeveralClustersError, ConnectionFileError or ConfigurationError.
        """
        settings = self.settings
        if cluster_id is None and not _name_in(settings) and _election_in(settings):
            # Only now: others need no part of the cluster, and do not load it.
            from headrace.cluster.high_availability.options import is_highly_available

            if is_highly_available(settings):
                return RestClusterClient.of_leader(settings)
        return RestClusterClient.of(self.find(cluster_id), settings)

    def find(self, cluster_id: str | None = None) -> FoundConnection:
        """Return the connection to the cluster; raises the errors of `retrieve`."""
        settings = self.settings
        if cluster_id is None and settings.get_option(TARGET) == SESSION:
            cluster_id = settings.get_option(SESSION_NAME) or None
        if cluster_id is None and settings.get_option(CONNECTION_FILE):
            return _connection_in(settings.get_option(CONNECTION_FILE))
        if cluster_id is not None or settings.get_option(TARGET) == SESSION:
            return find_session(cluster_id, _LOG.info)
        return find_connection(address_of(settings), _LOG.info)

    def means_same_cluster(self, other: Settings) -> bool:
        """Return whether other settings name a cluster in the same way."""
        named, of_other = _name_in(self.settings), _name_in(other)
        return (
            self.settings.get_option(TARGET) == other.get_option(TARGET)
            and named == of_other
            and (bool(named) or _election_in(self.settings) == _election_in(other))
        )

    def kill_cluster(self, cluster_id: str | None = None) -> None:
        """End a cluster with its jobs; raises the errors of `retrieve`."""
        with self.retrieve(cluster_id) as cluster:
            cluster.shut_down_cluster()

    def close(self) -> None:
        """Release the descriptor's resources, of which there are none; clusters keep running. Idempotent."""


class ClusterClientFactory:
    """Makes descriptors for settings.

    Example:
        descriptor = ClusterClientFactory({"execution.target": "session"}).create_cluster_descriptor()
        with descriptor.retrieve("nightly") as cluster:
            print(cluster.list_jobs())
    """

    def __init__(self, settings: dict[str, str] | Settings) -> None:
        self._settings: Final = Settings(dict(settings))

    def get_cluster_id(self) -> str | None:
        """Return the name of the session; None for the only one, and for targets without names."""
        return self._settings.get_option(SESSION_NAME) or None

    def create_cluster_descriptor(self) -> ClusterDescriptor:
        """Return the descriptor for `execution.target`: for `remote`, it only finds clusters.

        For other targets it also starts them.
        """
        if self._settings.get_option(TARGET) == REMOTE:
            return ClusterDescriptor(self._settings)
        return load_entry_point(ENTRY_POINT_GROUP, _STARTER).create_cluster_descriptor(
            self._settings
        )


def _name_in(settings: Settings) -> str:
    """Return the cluster's name from the settings (session, connection file or address), or an empty string."""
    if settings.get_option(TARGET) == SESSION and settings.get_option(SESSION_NAME):
        return settings.get_option(SESSION_NAME)
    return settings.get_option(CONNECTION_FILE) or address_of(settings) or ""


def _election_in(settings: Settings) -> dict[str, str]:
    """Return the settings of the cluster's election."""
    found = settings.to_dict().items()
    return {key: value for key, value in found if key.startswith("high-availability.")}


def _cannot_start() -> ConfigurationError:
    return ConfigurationError(
        TARGET.key, REMOTE,
        "this target is for running clusters: set it to session, application or per-job to start one",
    )  # fmt: skip


def _connection_in(file: str) -> FoundConnection:
    try:
        return connection_in(Path(file).expanduser())
    except FileNotFoundError as error:
        raise ConfigurationError(CONNECTION_FILE.key, file, "there is no such file") from error
