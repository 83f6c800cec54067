"""SimulatedCluster: a whole cluster on one thread, from one seed, with virtual time, a lossy network, workers that die.

Dispatcher, ResourceManager, JobMasters, TaskExecutors and their tasks are the real ones; clock, event loop, carriers
and the drivers of the task loops are the simulation's. All network events are recorded in a trace whose
hash is the same for the same seed. In idea: FoundationDB's and TigerBeetle's simulators.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Final, TypeVar

from headrace.cluster.blob.blob_client import prepare, submit_job
from headrace.cluster.cluster import Cluster
from headrace.cluster.high_availability.high_availability_services import HighAvailabilityServices
from headrace.cluster.job_master.job_master import JobMaster
from headrace.cluster.resource_manager.driver import WorkerListener
from headrace.cluster.resource_manager.workers import worker_names
from headrace.cluster.task_executor.deployment import StreamTaskFactory
from headrace.cluster.task_executor.options import NUMBER_OF_TASK_SLOTS
from headrace.cluster.task_executor.task_executor import TaskExecutor
from headrace.cluster.task_executor.task_manager_services import TaskManagerServices
from headrace.cluster.versions import software_versions
from headrace.core.clock import Cancellable, Clock, ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId, ResourceId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.core.resource_profile import ResourceProfile
from headrace.core.threads import BlockingRunner
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.dispatcher import JobResult
from headrace.gateways.errors import JobAlreadyEndedError
from headrace.gateways.resource_manager import ResourceManagerGateway, ResourceOverview
from headrace.graph.job_graph import JobGraph
from headrace.metrics.groups import MetricGroup
from headrace.network.memory.local_buffer_pool import NeverWait
from headrace.network.trace.simulated_transport import SimulatedNetwork
from headrace.rpc.loopback import LoopbackNetwork
from headrace.rpc.proxies import NO_TIMEOUT_MS, with_timeout
from testkit.simulation.cooperative_task_runner import CooperativeTaskRunner
from testkit.simulation.exchange_scan import ExchangeScan
from testkit.simulation.lossy_network import LinkFaults, LossyNetwork
from testkit.simulation.posting_io import PostingIo
from testkit.simulation.simulated_delivery import OrderedDelay, Trace, TracedDelivery
from testkit.simulation.virtual_loop import VirtualLoop

T = TypeVar("T")

MASTER: Final = "master"
_START_MS: Final = 1_000_000
# Memory is only counted; a cooperative task must never have to wait for it.
_MEMORY: Final = {"taskmanager.memory.network.min": "1g", "taskmanager.memory.network.max": "1g"}


class SimulatedTaskManager:
    """One worker process: its RpcService, data plane and TaskExecutor, which live and die together."""

    def __init__(self, simulation: "SimulatedCluster", worker_id: ResourceId) -> None:
        self.worker_id: Final = worker_id
        self.is_alive = True
        self._simulation: Final = simulation
        settings, random = simulation.settings, simulation.random
        clock = simulation.clock_of(worker_id.name, simulation.clock)
        self.rpc_service: Final = simulation.rpc_network.create_service(worker_id.name, clock=clock)
        transport = simulation.data_network.create_transport()
        self._shuffle: Final = simulation.exchanges.create_exchange(
            resource_id=worker_id,
            settings=settings,
            secret=b"simulation".ljust(32),
            bind_host="",
            advertised_host="",
            clock=clock,
            random=random,
            socket_directory=None,
            transport=transport,
            wait=NeverWait(),
            io=PostingIo(transport.post),
        )
        location = self._shuffle.start()
        factory = StreamTaskFactory(
            resource_id=worker_id,
            shuffle=self._shuffle,
            runner=CooperativeTaskRunner(self._schedule_while_alive),
            settings=settings,
            clock=clock,
            random=random,
            metrics=MetricGroup(clock),
            run_blocking=_start_at_once,
        )
        setup = TaskManagerServices(
            resource_id=worker_id,
            location=location,
            leader_retrieval_address=simulation.cluster.leaders.address,
            slot_count=settings.get_option(NUMBER_OF_TASK_SLOTS),
            slot_profile=ResourceProfile(),
            versions=software_versions(),
            pid=0,
            attempt_number=0,
            task_factory=factory,
            run_blocking=_run_at_once,
            exit_process=lambda reason: self.die(f"exit: {reason}"),
            on_terminated=self._ended,
            partitions=self._shuffle.partitions,
        )
        self.executor: Final = TaskExecutor(self.rpc_service, setup)
        self.executor.start()

    def exchange_leaks(self) -> list[str]:
        """Return descriptions of the resources that its data plane still holds, once no task is left."""
        return self._shuffle.leaks()

    def die(self, reason: str) -> None:
        """End at once, as a killed process does: nothing more is sent, its connections break."""
        if self.is_alive:
            self.is_alive = False
            self._simulation.trace.add(f"{self.worker_id} dies: {reason}")
            self.rpc_service.abort()
            self._simulation.data_network.kill(self.worker_id.name)
            self._simulation.exchanges.killed(self._shuffle)
            self._simulation.driver.process_ended(self.worker_id, reason)

    def _ended(self, reason: str) -> None:
        """Handle the end of the endpoint; the process ends when its last messages have left."""
        self._simulation.later(0, lambda: self.die(reason))

    def _schedule_while_alive(self, delay_ms: float, callback: Callable[[], None]) -> Cancellable:
        """Schedule a callback that runs only if the process is still alive."""

        def run() -> None:
            if self.is_alive:
                callback()

        return self._simulation.later(delay_ms, run)


class SimulatedDriver:
    """Starts workers after a delay, and reports their ends after another. Implements ResourceManagerDriver."""

    def __init__(self, simulation: "SimulatedCluster", max_worker_count: int) -> None:
        self._simulation = simulation
        self._max_worker_count = max_worker_count
        self._listener: WorkerListener | None = None
        self.workers: dict[ResourceId, SimulatedTaskManager] = {}
        self._given_up: set[ResourceId] = set()
        # Set when the host ignores requests, as those of a stopped master.
        self.is_deaf = False

    @property
    def max_worker_count(self) -> int | None:
        """Return the number of workers that the simulated host has room for."""
        return self._max_worker_count

    def refusal_of(self, profile: ResourceProfile, usual: ResourceProfile) -> str:
        return "all TaskManagers are alike here"

    def describe_shortage(self) -> str:
        return f"the simulated host has room for {self._max_worker_count}"

    def initialize(self, listener: WorkerListener) -> None:
        self._listener = listener

    def request_worker(self, worker_id: ResourceId, profile: ResourceProfile) -> None:
        if self.is_deaf:
            return
        delay_ms = self._simulation.random.uniform(10, 2_000)
        self._simulation.later(delay_ms, lambda: self._start(worker_id))

    def release_worker(self, worker_id: ResourceId) -> None:
        """Stop the worker a little later, so that a graceful stop comes first."""
        if self.is_deaf:
            return
        self._given_up.add(worker_id)
        worker = self.workers.get(worker_id)
        if worker is not None:
            self._simulation.later(1_000, lambda: worker.die("released"))

    def decommission(self, worker_id: ResourceId, notice_ms: float) -> None:
        """Withdraw a worker's place: another worker may have it at once, and the process dies after the notice."""
        assert self._listener is not None
        self._listener.worker_decommissioned(worker_id, "the simulated host takes it away")
        worker = self.workers[worker_id]
        self._simulation.later(notice_ms, lambda: worker.die("taken away"))

    async def close(self) -> None:
        for worker in list(self.workers.values()):
            worker.die("the host was closed")

    def live_workers(self) -> list[SimulatedTaskManager]:
        """Return the running processes, in order of their start."""
        return [worker for worker in self.workers.values() if worker.is_alive]

    def process_ended(self, worker_id: ResourceId, reason: str) -> None:
        """Handle the end of a process, which the host notices after a moment."""
        listener = self._listener
        assert listener is not None
        delay_ms = self._simulation.random.uniform(1, 500)
        self._simulation.later(delay_ms, lambda: listener.worker_terminated(worker_id, reason))

    def _start(self, worker_id: ResourceId) -> None:
        assert self._listener is not None
        if worker_id in self._given_up:
            self._listener.worker_terminated(worker_id, "released before it started")
            return
        self._listener.worker_started(worker_id)
        self.workers[worker_id] = SimulatedTaskManager(self._simulation, worker_id)


class SimulatedCluster:
    """One cluster from one seed. `faults` may be changed while it runs; `max_data_delay_ms` delays records.

    `clock_of` returns each TaskManager's clock by name; it runs like the simulation's and may show other times.
    With `high_availability`, whose leadership was granted on `clock`, this is the next leader of a cluster.
    `run_blocking` runs the control plane's file I/O.
    """

    def __init__(
        self,
        seed: int,
        *,
        settings: dict[str, str] | None = None,
        slots_per_task_manager: int = 1,
        max_worker_count: int = 4,
        faults: LinkFaults | None = None,
        max_data_delay_ms: float = 5.0,
        clock_of: Callable[[str, ManualClock], Clock] = lambda name, clock: clock,
        clock: ManualClock | None = None,
        high_availability: HighAvailabilityServices | None = None,
        run_blocking: BlockingRunner | None = None,
    ) -> None:
        self.clock_of: Final = clock_of
        self.seed: Final = seed
        self.random: Final = SeededRandom(seed)
        self.clock: Final = ManualClock(_START_MS) if clock is None else clock
        self.loop: Final = VirtualLoop(self.clock)
        self.trace: Final = Trace()
        slots = {NUMBER_OF_TASK_SLOTS.key: str(slots_per_task_manager)}
        self.settings: Final = Settings({**_MEMORY, **slots, **(settings or {})})
        # A separate generator, so that random values of components do not affect messages.
        self.faults: Final = LossyNetwork(self.clock, SeededRandom(seed + 1), faults)
        self.rpc_network: Final = LoopbackNetwork(
            self.clock,
            self.random,
            loop=self.loop,
            policy=TracedDelivery(self.faults, self.trace, self.clock),
            settings=self.settings,
        )
        delays = SeededRandom(seed + 2)
        self.data_network: Final = SimulatedNetwork(
            self.later, OrderedDelay(self.clock, delays, max_data_delay_ms)
        )
        self.exchanges: Final = ExchangeScan(self._counts_on)
        self.driver: Final = SimulatedDriver(self, max_worker_count)
        self.cluster: Final = Cluster(
            self.rpc_network.create_service(MASTER),
            self.driver,
            {},
            worker_name=worker_names("sim"),
            on_shut_down=lambda: None,
            run_blocking=run_blocking or _run_at_once,
            start_blocking=_start_at_once,
            high_availability=high_availability,
        )
        self.dispatcher: Final = with_timeout(self.cluster.dispatcher_gateway, NO_TIMEOUT_MS)
        self.cluster.start()

    def later(self, delay_ms: float, callback: Callable[[], None]) -> Cancellable:
        """Run `callback` after `delay_ms` of virtual time."""
        return self.loop.call_later(delay_ms / 1000, callback)

    def new_job_id(self) -> JobId:
        """Draw the id of a job."""
        return JobId.generate(self.random)

    def submit(self, graph: JobGraph) -> None:
        """Submit a job, after uploading its large payloads to the blob server."""
        job = prepare(graph, self.settings)
        blob_server = self.cluster.blob_server.self_gateway(BlobServerGateway)
        self.loop.run_until(submit_job(job, self.dispatcher, blob_server, self.settings))

    def cancel(self, job_id: JobId) -> None:
        """Cancel a job, unless it has ended."""

        async def ask() -> None:
            with contextlib.suppress(JobAlreadyEndedError):
                await self.dispatcher.cancel_job(job_id)

        self.cluster.dispatcher.spawn(ask(), "a client cancels")

    def await_result(self, job_id: JobId, max_virtual_ms: float = 3_600_000) -> JobResult:
        """Run until the job has ended."""
        return self.loop.run_until(self.dispatcher.request_job_result(job_id), max_virtual_ms)

    def run_for(self, duration_ms: float) -> None:
        """Let virtual time pass."""
        self.loop.run_for(duration_ms)

    def resources(self) -> ResourceOverview:
        """Return the ResourceManager's overview of resources."""
        manager = self.cluster.resource_manager.self_gateway(ResourceManagerGateway)
        return self.loop.run_until(manager.request_resource_overview())

    def kill_some_worker(self) -> None:
        """Kill a random live worker; no effect if there is none."""
        live = self.driver.live_workers()
        if live:
            live[self.random.randrange(len(live))].die("killed by the simulation")

    def cut_off_some_worker(self, duration_ms: float) -> None:
        """Lose every message between the master and a random live worker for a while."""
        live = self.driver.live_workers()
        if live:
            name = live[self.random.randrange(len(live))].worker_id.name
            self.trace.add(f"{name} is cut off")
            self.faults.partition([MASTER], [name])
            self.later(duration_ms, self.faults.heal)

    def silence_master(self) -> None:
        """Lose all later messages from and to the master, as if its process were stopped; connections stay open."""
        self.trace.add(f"{MASTER} falls silent")
        self.driver.is_deaf = True
        self.faults.partition(
            [MASTER], [each.worker_id.name for each in self.driver.live_workers()]
        )

    def _counts_on(self, job_id: JobId, name: str) -> bool:
        """Return whether a job is running and connected with a TaskManager, on both sides."""
        job = self.cluster.dispatcher._jobs.find(job_id)  # pyright: ignore[reportPrivateUsage]
        return (
            job is not None
            and isinstance(job.job_master, JobMaster)
            and job.job_master.status in (JobStatus.RUNNING, JobStatus.RESTARTING)
            and job.job_master.task_managers.is_registered(ResourceId(name))
            and self.driver.workers[ResourceId(name)].executor.follows(job_id)
        )

    def leaks(self) -> list[str]:
        """Return descriptions of job resources that live TaskManagers still hold after all jobs have ended."""
        found: list[str] = []
        for worker in self.driver.live_workers():
            for attempt_id in worker.executor.attempt_ids:
                found.append(f"{worker.worker_id} runs {attempt_id}")
            for slot in worker.executor.slot_report().slots:
                if slot.allocation_id is not None:
                    found.append(f"slot {slot.slot_id.slot_index} of {worker.worker_id} is taken")
            found += worker.exchange_leaks()
        for info in self.resources().task_managers:
            if info.free_slot_count != info.slot_count:
                found.append(f"the ResourceManager counts slots of {info.resource_id} as taken")
        return found

    def close(self) -> None:
        """End the cluster and its loop."""
        self.loop.run_until(self.cluster.close())
        self.loop.close()


async def _run_at_once(name: str, body: Callable[[], T]) -> T:
    return body()


def _start_at_once(name: str, body: Callable[[], None]) -> None:
    body()


def failure_note(seed: int) -> Callable[[str], str]:
    """Return a function that adds to an assertion's text how to reproduce the failure."""
    return functools.partial(_note, seed)


def _note(seed: int, text: str) -> str:
    return f"seed {seed}: {text} (again with: make sim SEED={seed})"
