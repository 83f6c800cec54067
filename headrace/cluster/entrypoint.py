"""ClusterEntrypoint: starts the control plane of one cluster in this process, on a thread of its own.

Source: Flink ClusterEntrypoint.
"""

import contextlib
import os
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final

from headrace.cluster.cluster import Cluster, WorkerNames
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.cluster.high_availability.high_availability_services import (
    HighAvailabilityServices,
    open_high_availability,
)
from headrace.cluster.high_availability.leader_election_service import OnStandby
from headrace.cluster.host_services import NO_HOST_SERVICES, HostServices
from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorFactories
from headrace.cluster.printed_output import OutputReceiver
from headrace.cluster.resource_manager.driver import ResourceManagerDriver
from headrace.cluster.resource_manager.workers import worker_names
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.randomness import SeededRandom
from headrace.core.security.tls import TlsIdentity
from headrace.core.threads import EventLoopThread, run_in_thread
from headrace.metrics.reporters.reporter_setup import create_metric_registry
from headrace.rpc.options import JOB_MANAGER_RPC_PORT
from headrace.rpc.tcp import TcpRpcService

DRIVER_NAME: Final = "jobmanager"
"""Name of the driver in its metrics."""

OnGranted = Callable[[HighAvailabilityServices], None]
"""Called when this process leads for the first time, on the thread that starts the cluster; may block."""


@dataclass(frozen=True)
class ClusterEntrypoint:
    """Starts a cluster whose workers come from `driver`; its processes share `secret` and, if given, `tls`.

    Big payloads are kept below `scratch`, or in the system's temporary directory. `show_output` writes lines that are
    printed in TaskManagers, on a thread of its own.
    """

    settings: Settings
    driver: ResourceManagerDriver
    coordinator_factories: CoordinatorFactories
    secret: bytes = field(repr=False)
    bind_host: str
    advertised_host: str
    clock: Clock
    random: SeededRandom
    _: KW_ONLY
    worker_name: WorkerNames | None = None
    tls: TlsIdentity | None = None
    scratch: Path | None = None
    show_output: Callable[[bytes], None] | None = None
    host_services: HostServices = NO_HOST_SERVICES

    def start(
        self,
        on_standby: OnStandby | None = None,
        on_granted: OnGranted | None = None,
        check_host: Callable[[], object] = lambda: None,
    ) -> ClusterHandle:
        """Start the control thread and the endpoints. PortInUseError if the port is taken.

        With high availability this waits, as a standby, until no other process leads the cluster: no port is bound and
        no client is served before. `check_host` is called meanwhile, and raises if workers can no longer run;
        `on_granted` is called then, before any job continues. Raises the errors of HighAvailabilityServices and
        LeaderElectionService.
        """
        high_availability = open_high_availability(self.settings, self.clock, self.random)
        with contextlib.ExitStack() as on_failure:
            if high_availability is not None:
                on_failure.callback(high_availability.close)
                high_availability.election.on_standby = on_standby
                high_availability.election.await_leadership(check_host)
                high_availability.remove_leftovers()
                if on_granted is not None:
                    on_granted(high_availability)
            control = EventLoopThread("headrace-control")
            on_failure.callback(control.stop)
            handle = control.run(self._start(control, high_availability))
            on_failure.pop_all()
            return handle

    async def _start(
        self, control: EventLoopThread, high_availability: HighAvailabilityServices | None
    ) -> ClusterHandle:
        rpc_service = TcpRpcService(
            self.settings,
            bind_host=self.bind_host,
            advertised_host=self.advertised_host,
            port_option=JOB_MANAGER_RPC_PORT,
            secret=self.secret,
            clock=self.clock,
            random=self.random,
            tls=self.tls,
        )
        registry = create_metric_registry(self.settings, self.clock, DRIVER_NAME)
        await rpc_service.start()
        cluster = Cluster(
            rpc_service,
            self.driver,
            self.coordinator_factories,
            worker_name=self.worker_name or self._worker_names(),
            on_shut_down=lambda: handle.is_shutting_down.set(),
            scratch=self.scratch,
            secret=self.secret,
            tls=self.tls,
            host_services=self.host_services,
            registry=registry,
            host=self.advertised_host,
            high_availability=high_availability,
        )
        show = self.show_output
        output = None if show is None else OutputReceiver(rpc_service, run_in_thread, show)
        handle = ClusterHandle(control, rpc_service, cluster, output)
        await handle.start()
        return handle

    def _worker_names(self) -> WorkerNames:
        # The random part distinguishes the workers of this cluster from those of earlier ones.
        return worker_names(f"headrace-{os.getpid()}-{self.random.getrandbits(32):08x}")
