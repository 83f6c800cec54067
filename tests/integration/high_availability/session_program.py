"""A session as `headrace cluster start --foreground` serves it, with TaskManagers that are processes, without Spark.

Its arguments are a JSON file with its settings, its name, and a scratch folder. It ends with SIGTERM.
"""

import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

from headrace.cli.cluster.session import serve_session
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.cluster.entrypoint import ClusterEntrypoint
from headrace.cluster.high_availability.coordination import storage_folder
from headrace.cluster.high_availability.leader_election_service import OnStandby
from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.cluster.host_services import HostServices
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.randomness import system_random
from headrace.rest.cluster_view import ControlPlane
from headrace.rest.web_monitor import WebMonitor
from headrace.spark.session_cluster import SessionCluster
from tests.integration.high_availability.drivers import FREEZES_BEFORE_IT_SERVES
from tests.integration.programs.process_cluster import ProcessDriver
from tests.unit.network.exchange import SECRET


class ProcessSession(SessionCluster):
    """A session on processes of this machine."""

    def __init__(self, settings: Settings, name: str, log_folder: Path | None = None) -> None:
        super().__init__(settings, name, log_folder)
        self._own_settings: Final = settings
        self._own_name: Final = name
        self._driver: Final[Any] = ProcessDriver(settings, Path(sys.argv[3]), 2)
        self._monitor: Final = WebMonitor(settings, SystemClock(), system_random())
        self._handle: ClusterHandle | None = None

    def start(self, on_standby: OnStandby | None = None) -> None:
        cluster_id = storage_folder(self._own_settings)

        def stands_by(leader: LeaderRecord | None) -> None:
            if (handle := self._handle) is not None:
                self._monitor.show_leadership(cluster_id, lambda: handle.leading_epoch)
            if on_standby is not None:
                on_standby(leader)

        entrypoint = ClusterEntrypoint(
            self._own_settings, self._driver, {}, SECRET, "127.0.0.1", "127.0.0.1", SystemClock(),
            system_random(), host_services=HostServices(on_job_ended=self._monitor.job_ended),
        )  # fmt: skip
        handle = self._handle = self._driver.handle = entrypoint.start(stands_by)
        if FREEZES_BEFORE_IT_SERVES in os.environ:
            os.kill(os.getpid(), signal.SIGSTOP)
        control = ControlPlane(handle.dispatcher, handle.resource_manager, handle.loop)
        self._monitor.start(control, name=self._own_name, is_session=True)
        assert self._monitor.server is not None
        self._monitor.show_leadership(cluster_id, lambda: handle.leading_epoch)
        handle.announce(self._monitor.server.address)

    def wait(self) -> None:
        assert self._handle is not None
        self._handle.is_shutting_down.wait()

    def close(self) -> None:
        self._monitor.leave()
        if self._handle is not None:
            self._handle.close()
        self._monitor.close()
        self._driver.kill_all()


def main(settings_file: str, name: str, _: str) -> int:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    settings = Settings(json.loads(Path(settings_file).read_text()))
    return serve_session(settings, name, None, lambda _: None, ProcessSession)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
