"""SessionCluster: a cluster without a program, which takes jobs of any client over REST until it is stopped.

It runs in a process of its own, in the main thread. Functions of jobs are never imported here: jobs come as graphs, and
their functions are unpickled by TaskManagers alone.
Source: Flink SessionClusterEntrypoint.
"""

import logging
from pathlib import Path
from typing import Final

from headrace.cluster.cluster_handle import ClusterHandle
from headrace.cluster.high_availability.leader_election_service import OnStandby
from headrace.cluster.resource_manager.options import EXCLUSIVE_TASK_MANAGERS
from headrace.core.config import Settings
from headrace.core.errors import HostError
from headrace.rest.options import REST_ENABLED
from headrace.rest.rest_server import RestServer
from headrace.spark.host import SessionStoppedError, SparkHost

_LOG: Final = logging.getLogger(__name__)
_POLL_S: Final = 1.0
"""Interval at which the cluster is asked whether it has failed; that it is told to end is heard at once."""


class SessionCluster:
    """One session. `start`, `wait` for its end, `close`."""

    is_session = True
    """Whether clients that look for a session find it."""

    def __init__(self, settings: Settings, name: str, log_folder: Path | None = None) -> None:
        self._settings: Final = session_settings(settings)
        self._name: Final = name
        self._log_folder: Final = log_folder
        self._host: SparkHost | None = None

    @property
    def master(self) -> str:
        """The Spark master on which it runs."""
        assert self._host is not None, "the session has not been started"
        return self._host.master

    @property
    def rest(self) -> RestServer:
        """Its REST endpoint."""
        assert self._host is not None and self._host.rest is not None, "it has not been started"
        return self._host.rest

    def start(self, on_standby: OnStandby | None = None) -> None:
        """Start Spark and the control plane; TaskManagers come when a job needs them. HostError; ConfigurationError.

        With high availability it waits for the leadership; `on_standby` hears of the leader.
        """
        self._host = SparkHost(
            self._settings,
            name=self._name,
            is_session=self.is_session,
            log_folder=self._log_folder,
        )
        self._host.start(on_standby)
        if self._host.rest is None:
            raise HostError(
                f"the cluster takes its jobs over REST, which did not start: see its log, and {REST_ENABLED.key}"
            )
        _LOG.info("session '%s' takes jobs at %s", self._name, self.rest.address)

    def wait(self) -> None:
        """Wait until a client has asked for the end of the cluster; raise the error that ends it before."""
        host = self._host
        assert host is not None, "the session has not been started"
        while True:
            is_ending = host.handle.is_shutting_down.wait(_POLL_S)
            if host.failure is not None:
                raise host.failure
            if is_ending:
                return
            if host.has_lost_session:
                raise SessionStoppedError
            if self.is_over(host.handle):
                return

    def is_over(self, handle: ClusterHandle) -> bool:
        """Return whether the cluster ends by itself now; a session never does."""
        return False

    def close(self) -> None:
        """Cancel its jobs, whose checkpoints stay, and end TaskManagers, control plane and Spark. Idempotent."""
        host, self._host = self._host, None
        if host is not None:
            host.close()


def session_settings(settings: Settings) -> Settings:
    """Return the settings of a session: a TaskManager serves one job alone, unless they say otherwise."""
    return Settings({EXCLUSIVE_TASK_MANAGERS.key: "true", **settings.to_dict()})
