"""WebMonitor: the part of a cluster's host that users see: REST with its dashboard, and the history of jobs.

Source: Flink WebMonitorEndpoint, which also archives the jobs that have ended.
"""

import dataclasses
from collections.abc import Callable
from typing import Final

from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.randomness import SeededRandom
from headrace.core.security.tls import TlsIdentity
from headrace.gateways.ended_job import EndedJob
from headrace.rest.cluster_view import ControlPlane
from headrace.rest.history.job_history import JobHistory
from headrace.rest.rest_server import RestServer, start_rest_server


class WebMonitor:
    """Web monitor of one cluster, created before it, as the Dispatcher reports each ended job to it (`job_ended`).

    Call `start` once the cluster runs, `leave` before it is closed, `close` afterwards: jobs that end with the cluster
    are archived too.
    """

    def __init__(self, settings: Settings, clock: Clock, random: SeededRandom) -> None:
        self._settings: Final = settings
        self._clock: Final = clock
        self._history: Final = JobHistory(settings, clock, random)
        self._server: RestServer | None = None

    @property
    def server(self) -> RestServer | None:
        """Return the endpoint, or None if REST is not served."""
        return self._server

    def job_ended(self, job: EndedJob) -> None:
        """Archive a job that has ended; from any thread, returns at once."""
        self._history.job_ended(job)

    def start(
        self,
        control: ControlPlane,
        *,
        name: str,
        identity: TlsIdentity | None = None,
        is_session: bool = False,
    ) -> None:
        """Record the jobs of a cluster from now on, and serve REST, with the history of its jobs.

        ConfigurationError, or PortInUseError, if REST cannot start.
        """
        self._history.watch(control.dispatcher, control.loop)
        self._server = start_rest_server(
            dataclasses.replace(control, metrics_history=self._history.metrics_of),
            self._settings,
            self._clock,
            name=name,
            identity=identity,
            is_session=is_session,
        )

    def show_leadership(self, cluster_id: str, epoch_of: Callable[[], int]) -> None:
        """Publish the epoch in which this driver leads, for clients of this machine; 0: it stands by. Any thread."""
        if self._server is not None and cluster_id:
            self._server.show_leadership(cluster_id, epoch_of)

    def leave(self) -> None:
        """End REST, and stop reading the cluster."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self._history.stop_watching()

    def close(self) -> None:
        """Wait a little for archives that are being written, and end. Not from the control thread."""
        self._history.close()
