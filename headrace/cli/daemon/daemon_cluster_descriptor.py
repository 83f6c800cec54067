"""DaemonClusterDescriptor: clusters on Spark whose drivers are daemons of this machine.

Source: Flink YarnClusterDescriptor, KubernetesClusterDescriptor.
"""

import contextlib
import logging
from pathlib import Path
from typing import Final

import msgspec

from headrace.api.client.job_client import JobClient
from headrace.cli.daemon.console_file import last_lines
from headrace.cli.daemon.daemon_process import DaemonProcess
from headrace.cli.daemon.local_process import IMPATIENT, LocalProcess, Patience
from headrace.cli.daemon.messages import RunJobCluster, RunProgram, RunSession
from headrace.client.cluster_descriptor import ClusterDescriptor
from headrace.client.deployed_cluster import DeployedCluster
from headrace.client.program import Program
from headrace.client.rest_cluster_client import RestClusterClient
from headrace.cluster.high_availability.options import (
    HIGH_AVAILABILITY_TYPE,
    NONE,
    high_availability_type,
    is_highly_available,
)
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, ProgramError
from headrace.graph.job_graph import JobGraph
from headrace.rest.client_errors import RestUnreachableError

_LOG: Final = logging.getLogger(__name__)
_PRINTED_LINES: Final = 1_000
_END_TIMEOUT_S: Final = 60.0


class EndedWithoutJobError(ProgramError):
    """Raised if a program has ended before any of its jobs was accepted. `lines`: the program's last output."""

    def __init__(self, exit_code: int, lines: tuple[str, ...]) -> None:
        super().__init__(f"the program has ended without a job, with code {exit_code}")
        self.exit_code = exit_code
        self.lines = lines


class DaemonClusterDescriptor(ClusterDescriptor):
    """Starts clusters as daemons. DaemonFailedError if one does not start."""

    def __init__(self, settings: Settings, *, is_verbose: bool = False) -> None:
        super().__init__(settings)
        self._is_verbose: Final = is_verbose

    def deploy_session_cluster(
        self, name: str, *, is_standby: bool = False, is_supervised: bool = False
    ) -> DeployedCluster:
        daemon = self._start(RunSession(name, is_standby=is_standby, is_supervised=is_supervised))
        deployed = daemon.report().cluster
        try:
            # Its answer shows that clients reach it.
            if not deployed.leader:
                with deployed.get_cluster_client(self.settings) as client:
                    client.slots_available()
        except BaseException:
            daemon.end()
            raise
        daemon.leave()
        return _supervised(deployed, daemon) if is_supervised else deployed

    def deploy_application_cluster(
        self,
        program: Program,
        *,
        is_standby: bool = False,
        is_supervised: bool = False,
    ) -> DeployedCluster:
        """Start a cluster that runs the program; EndedWithoutJobError if the program ended without a job."""
        duty = RunProgram(program, is_standby=is_standby, is_supervised=is_supervised)
        daemon = self._start(duty)
        report = daemon.report()
        deployed = report.cluster
        if report.exit_code is not None:
            lines = tuple(last_lines(Path(deployed.log_folder), _PRINTED_LINES))
            daemon.end()
            raise EndedWithoutJobError(report.exit_code, lines)
        daemon.leave()
        return _supervised(deployed, daemon) if is_supervised else deployed

    def deploy_job_cluster(
        self, name: str, job_graph: JobGraph
    ) -> tuple[RestClusterClient, JobClient]:
        refuse_highly_available_job(self.settings)
        daemon = self._start(RunJobCluster(name))
        deployed = daemon.report().cluster
        try:
            cluster = deployed.get_cluster_client(self.settings)
            try:
                client = cluster.submit_job(job_graph)
            except BaseException:
                cluster.close()
                raise
        except BaseException:
            daemon.end()
            raise
        daemon.leave()
        _LOG.info(
            "job '%s' (%s) runs on its own cluster at %s (process %d), whose logs are in %s",
            job_graph.name, job_graph.job_id, cluster.address, daemon.pid, daemon.log_folder,
        )  # fmt: skip
        return cluster, client

    def kill_cluster(self, cluster_id: str | None = None) -> None:
        """End a cluster over REST and, if that fails and it is on this machine, by signals. StillRunningError."""
        found = self.find(cluster_id)
        process = LocalProcess.of(found.connection)
        if process is None:
            super().kill_cluster(cluster_id)
            return
        with (
            RestClusterClient.of(found, self.settings.with_values(IMPATIENT)) as cluster,
            contextlib.suppress(RestUnreachableError),
        ):
            cluster.shut_down_cluster()
        patience = Patience(_END_TIMEOUT_S)
        process.await_end(found.connection, patience, is_forced=True, note=_LOG.warning)

    def _start(self, duty: RunSession | RunProgram | RunJobCluster) -> DaemonProcess:
        return DaemonProcess(duty, self.settings.to_dict(), is_verbose=self._is_verbose)


def refuse_highly_available_job(settings: Settings) -> None:
    """Raise ConfigurationError for high availability of a job's own cluster: no other driver would continue the job.

    Only the next cluster with the same id would, in addition to its own job.
    """
    if is_highly_available(settings):
        raise ConfigurationError(
            HIGH_AVAILABILITY_TYPE.key,
            high_availability_type(settings),
            "no other driver can continue the job of a per-job cluster: run the program as an application that "
            f"recovers, 'headrace run -d --supervise -D {HIGH_AVAILABILITY_TYPE.key}=…' without --target, submit it "
            f"to a session that recovers, or set {HIGH_AVAILABILITY_TYPE.key} to {NONE}",
        )


def _supervised(deployed: DeployedCluster, daemon: DaemonProcess) -> DeployedCluster:
    return msgspec.structs.replace(
        deployed, supervisor_pid=daemon.pid, supervisor_log_folder=str(daemon.log_folder)
    )
