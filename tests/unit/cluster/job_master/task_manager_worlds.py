"""A JobMaster with TaskManagers that answer for their metrics."""

import asyncio

from headrace.cluster.job_master.connections.options import METRICS_UPDATE_INTERVAL
from headrace.cluster.job_master.connections.task_managers import TaskManagers
from headrace.cluster.job_master.executions import Execution, Executions
from headrace.cluster.job_master.slots.slot_pool import SlotPool
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobMasterId, ResourceId
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.job_master import TaskManagerRegistration
from headrace.gateways.messages import ErrorInfo, TaskMetrics
from headrace.gateways.task_executor import TaskExecutorGateway
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.loopback import LoopbackNetwork
from testkit.scripted_gateways import end_processes, start_scripted
from testkit.simulation.virtual_loop import VirtualLoop
from tests.unit.cluster.cluster_samples import JOB, TM_1, job_graph, vertex

INTERVAL_MS = 500


SETTINGS = Settings({METRICS_UPDATE_INTERVAL.key: f"{INTERVAL_MS} ms", "heartbeat.timeout": "1 h"})


def never_lost(lost: ResourceId | Execution, error: ErrorInfo) -> None:
    raise AssertionError(lost, error.text)


class World:
    """A job of one subtask. Its TaskManager counts how often it is asked, and tells the count as the task's metric."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.loop = VirtualLoop(clock)
        self.network = LoopbackNetwork(clock, SeededRandom(1), loop=self.loop, settings=SETTINGS)
        executions = Executions(job_graph((vertex(1, 1),)), 0)
        (self.execution,) = executions
        self.asked_count = 0
        task_manager = self.task_manager = start_scripted(
            self.network.create_service("worker"),
            "tm",
            TaskExecutorGateway,
            request_task_metrics=lambda *_: self._metrics(),
        )
        endpoint = RpcEndpoint(self.network.create_service("master"), "jm")
        endpoint.start()
        self.task_managers = TaskManagers(
            endpoint,
            executions,
            SlotPool(),
            job_id=JOB,
            job_master_id=JobMasterId(b"m" * 16),
            resource_id=ResourceId("jm"),
            settings=SETTINGS,
            blob_server_address="",
            on_lost=never_lost,
            on_task_lost=never_lost,
        )
        location = TaskManagerLocation(TM_1, "worker", 1, None, "host")
        registration = TaskManagerRegistration(task_manager.address, location)
        self.loop.run_until(self.task_managers.register(registration))

    def _metrics(self) -> tuple[TaskMetrics, ...]:
        self.asked_count += 1
        return (TaskMetrics(self.execution.attempt_id, {"asked": self.asked_count}),)

    def refresh(self, caller_count: int = 1, age_max_ms: float = 0.0) -> None:
        async def all_at_once() -> None:
            await asyncio.gather(
                *(self.task_managers.refresh_metrics(age_max_ms) for _ in range(caller_count))
            )

        self.loop.run_until(all_at_once())

    def close(self) -> None:
        end_processes(self.network, self.loop)
