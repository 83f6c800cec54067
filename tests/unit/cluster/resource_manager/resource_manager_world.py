"""A ResourceManager with scripted TaskManagers and JobMasters."""

from pathlib import Path
from typing import Any

from headrace.cluster.resource_manager.driver import WorkerHost, WorkerListener
from headrace.cluster.resource_manager.resource_manager import ResourceManager
from headrace.cluster.resource_manager.workers import worker_names
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobMasterId, ResourceId, ResourceManagerId
from headrace.core.randomness import SeededRandom
from headrace.core.resource_profile import ResourceProfile
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.job_master import JobMasterGateway
from headrace.gateways.messages import (
    MemoryUsage,
    SlotReport,
    SlotStatus,
)
from headrace.gateways.resource_manager import (
    JobMasterRegistered,
    ResourceManagerGateway,
    ResourceRequirement,
    ResourceRequirements,
    TaskExecutorRegistered,
    TaskExecutorRegistration,
    TaskExecutorRegistrationResponse,
)
from headrace.gateways.task_executor import TaskExecutorGateway, TaskExecutorHeartbeatPayload
from headrace.rpc.loopback import LoopbackNetwork
from testkit.scripted_gateways import end_processes, start_scripted
from testkit.simulation.virtual_loop import VirtualLoop
from tests.unit.cluster.cluster_samples import ANY_PROFILE, JOB, SLOT_PROFILE, empty_slots

RM_ID = ResourceManagerId(b"r" * 16)


MEMORY = MemoryUsage(300 << 20, 1 << 30)


JM_ID = JobMasterId(b"m" * 16)


VERSIONS = {"python": "3.11.7", "pyarrow": "26.0"}


WORKER = ResourceId("test-tm-1")


class NotingDriver:
    """Starts nothing."""

    max_worker_count: int | None = None

    def __init__(self) -> None:
        self.requested: list[ResourceId] = []
        self.profiles: list[ResourceProfile] = []
        self.released: list[ResourceId] = []
        self.is_closed = False
        self.refusal = ""

    def refusal_of(self, profile: ResourceProfile, usual: ResourceProfile) -> str:
        return self.refusal

    def describe_shortage(self) -> str:
        return "the host is full: make room"

    def initialize(self, listener: WorkerListener) -> None:
        self.listener = listener

    def request_worker(self, worker_id: ResourceId, profile: ResourceProfile) -> None:
        self.requested.append(worker_id)
        self.profiles.append(profile)

    def release_worker(self, worker_id: ResourceId) -> None:
        self.released.append(worker_id)

    async def close(self) -> None:
        self.is_closed = True


class World:
    """A ResourceManager, one TaskManager process and one JobMaster process. `log_folder` is the driver's."""

    def __init__(
        self, settings: dict[str, str] | None = None, log_folder: Path | None = None
    ) -> None:
        clock = ManualClock()
        self.loop = VirtualLoop(clock)
        self.network = LoopbackNetwork(
            clock, SeededRandom(1), loop=self.loop, settings=Settings(settings)
        )
        self.driver = NotingDriver()
        self.host = WorkerHost(self.driver, worker_names("test"))
        self.failures: list[BaseException] = []
        self._log_folder = log_folder
        self._master = self.network.create_service("master")
        self.manager = self._start_manager()
        self.worker = self.network.create_service("worker")
        self.task_manager = start_scripted(
            self.worker,
            "taskmanager",
            TaskExecutorGateway,
            heartbeat_from_resource_manager=TaskExecutorHeartbeatPayload(
                SlotReport(empty_slots(WORKER, 1)), MEMORY
            ),
            can_be_released=True,
        )
        self.job = self.network.create_service("job")
        self.job_master = start_scripted(self.job, "jobmanager", JobMasterGateway, JM_ID)
        self.gateway = self.worker.gateway(self.manager.address, ResourceManagerGateway, RM_ID)

    def _start_manager(self) -> ResourceManager:
        async def run_at_once(name: str, body: Any) -> Any:
            return body()

        manager = ResourceManager(
            self._master,
            RM_ID,
            self.host,
            resource_id=ResourceId("rm"),
            versions=VERSIONS,
            on_host_failed=self.failures.append,
            run_blocking=run_at_once,
            log_folder=self._log_folder,
        )
        manager.start()
        self.loop.run_for(1)
        return manager

    def follow(self) -> None:
        """Let another ResourceManager follow on this one, whose workers it takes over."""
        self.ask(self.manager.close())
        self.manager = self._start_manager()
        self.gateway = self.worker.gateway(self.manager.address, ResourceManagerGateway, RM_ID)

    def ask(self, coroutine: Any) -> Any:
        return self.loop.run_until(coroutine)

    def run_for(self, duration_ms: float) -> None:
        self.loop.run_for(duration_ms)

    def register(
        self,
        *,
        versions: dict[str, str] = VERSIONS,
        attempt: int = 0,
        name: ResourceId = WORKER,
        host: str = "worker",
    ) -> TaskExecutorRegistrationResponse:
        location = TaskManagerLocation(name, host, 1, None, "host")
        registration = TaskExecutorRegistration(
            self.task_manager.address, location, 1, SLOT_PROFILE, versions, 7, attempt
        )
        return self.ask(self.gateway.register_task_executor(registration))

    def register_with_slots(
        self,
        name: ResourceId = WORKER,
        host: str = "worker",
        slots: tuple[SlotStatus, ...] = (),
    ) -> TaskExecutorRegistered:
        answer = self.register(name=name, host=host)
        assert isinstance(answer, TaskExecutorRegistered)
        report = SlotReport(slots or empty_slots(name, 1))
        self.ask(self.gateway.send_slot_report(name, answer.instance_id, report))
        self.run_for(10)
        return answer

    def declare(
        self,
        count: int,
        job_master_id: JobMasterId = JM_ID,
        profile: ResourceProfile = ANY_PROFILE,
    ) -> None:
        address = self.job_master.address
        registered = self.gateway.register_job_master(JM_ID, ResourceId("jm"), address, JOB)
        assert isinstance(self.ask(registered), JobMasterRegistered)
        requirements = (ResourceRequirement(profile, count),) if count else ()
        self.ask(
            self.gateway.declare_required_resources(
                job_master_id, ResourceRequirements(JOB, address, requirements)
            )
        )
        self.run_for(10)

    @property
    def explanation(self) -> str:
        return self.ask(self.gateway.request_resource_overview()).explanation

    def close(self) -> None:
        end_processes(self.network, self.loop)
