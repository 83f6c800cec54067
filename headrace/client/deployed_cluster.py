"""DeployedCluster: a cluster that was started, with access to its client. Source: Flink ClusterClientProvider."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headrace.core.config import Settings
from headrace.core.errors import HostError
from headrace.rest.home.connections import connection_in

if TYPE_CHECKING:
    from headrace.client.rest_cluster_client import RestClusterClient


class DeployedCluster(msgspec.Struct, frozen=True):
    """A cluster that was started. `pid`: the process of its driver, which writes its logs to `log_folder`."""

    address: str = ""
    """Address of the REST endpoint."""
    connection_file: str = ""
    master: str = ""
    job_id: str = ""
    """Id of the first job of a program."""
    leader: str = ""
    """The leader behind which a standby waits, at `address` if that is known; else empty."""
    pid: int = 0
    log_folder: str = ""
    supervisor_pid: int = 0
    """Process that restarts the driver; 0 if there is none."""
    supervisor_log_folder: str = ""

    def get_cluster_client(self, settings: Settings | None = None) -> "RestClusterClient":
        """Return a client of the cluster. HostError for a standby, which has no clients yet; ConnectionFileError."""
        # Imported late: commands that only hear of a cluster need none of it.
        from headrace.client.rest_cluster_client import RestClusterClient

        if not self.connection_file:
            # Imported late: other clients need no part of the cluster.
            from headrace.cluster.high_availability.lease import leader_at

            leader = leader_at(self.leader, self.address) or "it does not serve REST"
            raise HostError(
                f"process {self.pid} is a standby, which accepts no clients: connect to the leader of the cluster "
                f"({leader})"
            )
        given = {} if settings is None else settings.to_dict()
        return RestClusterClient.of(connection_in(Path(self.connection_file)), given)
