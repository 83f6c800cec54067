"""A JobMaster with scripted neighbours, for one job with its settings."""

from collections.abc import Callable
from typing import Any, TypeVar

from headrace.cluster.dispatcher.job_archive import ArchivedJob
from headrace.cluster.job_master.connections.options import SUBMIT_TIMEOUT
from headrace.cluster.job_master.coordinators.collect_coordinator import (
    COLLECT_BUFFER_SIZE,
    CollectCoordinator,
)
from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.cluster.job_master.job_master import JobMaster
from headrace.cluster.job_master.shared_services import JobManagerSharedServices
from headrace.cluster.leadership import LeaderDirectory
from headrace.cluster.shuffle_master import CreditBasedShuffleMaster
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId, JobMasterId, ResourceId, ResourceManagerId
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.job_master import JobMasterGateway, TaskManagerRegistration
from headrace.gateways.messages import SlotOffer
from headrace.gateways.resource_manager import JobMasterRegistered, ResourceManagerGateway
from headrace.gateways.task_executor import TaskExecutorGateway
from headrace.rpc.loopback import LoopbackNetwork
from testkit.scripted_gateways import end_processes, start_scripted
from testkit.simulation.virtual_loop import VirtualLoop
from tests.unit.cluster.cluster_samples import (
    JOB,
    SLOT_PROFILE,
    TM_1,
    allocation,
    job_graph,
    vertex,
)
from tests.unit.cluster.task_executor.task_executor_world import never

RM_ID = ResourceManagerId(b"r" * 16)


JM_ID = JobMasterId(b"m" * 16)


CLUSTER = {SUBMIT_TIMEOUT.key: "40 s", COLLECT_BUFFER_SIZE.key: "4 kb", "heartbeat.timeout": "1 h"}


T = TypeVar("T")


async def run_at_once(name: str, body: Callable[[], T]) -> T:
    return body()


class World:
    """A JobMaster of a job with one subtask, and a scripted TaskManager.

    Unless it is told otherwise, it never says whether it took the task.
    """

    def __init__(self, job_settings: dict[str, str], **task_manager_answers: Any) -> None:
        clock = ManualClock()
        self.loop = VirtualLoop(clock)
        self.network = LoopbackNetwork(
            clock, SeededRandom(1), loop=self.loop, settings=Settings(CLUSTER)
        )
        self.contexts: list[CoordinatorContext] = []
        self.ends: list[ArchivedJob] = []
        self.attempts: list[tuple[JobId, int]] = []
        worker = self.network.create_service("worker")
        resource_manager = start_scripted(
            worker,
            "rm",
            ResourceManagerGateway,
            RM_ID,
            register_job_master=JobMasterRegistered(RM_ID, ResourceId("rm")),
        )
        leaders = LeaderDirectory(worker)
        leaders.confirm(resource_manager.address, RM_ID)
        leaders.start()
        answers = {"submit_task": lambda *_: never(), **task_manager_answers}
        self.task_manager = start_scripted(worker, "tm", TaskExecutorGateway, **answers)
        self.job_master = JobMaster(
            self.network.create_service("master"),
            JM_ID,
            job_graph((vertex(1, 1, coordinator="noting"),), settings=job_settings),
            JobManagerSharedServices(
                leader_retrieval_address=leaders.address,
                coordinator_factories={"noting": self._coordinator},
                blob_server=worker.gateway(resource_manager.address, BlobServerGateway),
                shuffle_master=CreditBasedShuffleMaster(),
                run_blocking=run_at_once,
                start_blocking=lambda _, body: body(),
                on_attempt=lambda graph, number: self.attempts.append((graph.job_id, number)),
            ),
            on_ended=self.ends.append,
        )
        self.job_master.start()
        self.loop.run_for(10)
        self.gateway = gateway = worker.gateway(self.job_master.address, JobMasterGateway, JM_ID)
        location = TaskManagerLocation(TM_1, "worker", 1, None, "host")
        registration = TaskManagerRegistration(self.task_manager.address, location)
        self.loop.run_until(gateway.register_task_manager(JOB, registration))
        offers = (SlotOffer(allocation(1), 0, SLOT_PROFILE),)
        self.loop.run_until(gateway.offer_slots(TM_1, offers))

    def _coordinator(self, context: CoordinatorContext, payload: bytes) -> Any:
        self.contexts.append(context)
        return CollectCoordinator(context, payload)

    def close(self) -> None:
        end_processes(self.network, self.loop)
