"""Jobs of a cluster whose TaskManagers are processes with one slot each, and what each of them holds."""

import msgspec

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.core.randomness import system_random
from headrace.functions.sink import DiscardingSink
from headrace.graph.job_graph_generator import generate_job_graph
from tests.integration.programs.process_cluster import ProcessDriver

BOUNDED = {
    "taskmanager.memory.network.min": "32mb",
    "taskmanager.memory.network.max": "32mb",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.delay": "100 ms",
    "restart-strategy.fixed-delay.attempts": "100",
}


class ProcessJobs:
    """Jobs of a cluster of processes with one slot each."""

    def __init__(self, handle: ClusterHandle, driver: ProcessDriver) -> None:
        self.handle, self.driver = handle, driver

    def submit(self, parallelism: int, python_executable: str = "") -> JobId:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(parallelism)
        source = DataGeneratorSource(
            lambda index: index, type_info=Types.LONG(), rows_per_second=100
        )
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        # All subtasks are one region: they run together or not at all.
        numbers.rebalance().map(abs, Types.LONG()).sink_to(DiscardingSink())
        job_id = JobId.generate(system_random())
        graph = generate_job_graph(env.get_stream_graph(), job_id, Settings(BOUNDED))
        self.handle.submit(msgspec.structs.replace(graph, python_executable=python_executable))
        return job_id

    def runs(self, job_id: JobId) -> bool:
        """Whether every task of the job runs."""
        details = self.handle.call(self.handle.dispatcher.request_job_details(job_id))
        states = [subtask.state for vertex in details.vertices for subtask in vertex.subtasks]
        return bool(states) and all(state is ExecutionState.RUNNING for state in states)

    def cancel(self, job_id: JobId) -> None:
        self.handle.call(self.handle.dispatcher.cancel_job(job_id))
        result = self.handle.call(self.handle.dispatcher.request_job_result(job_id), 60)
        assert result.status is JobStatus.CANCELED

    def held_by(self, job_id: JobId) -> set[str]:
        """The TaskManagers of which the job has the slot."""
        overview = self.handle.call(self.handle.resource_manager.request_resource_overview())
        return {
            str(one.resource_id)
            for one in overview.task_managers
            if any(slot.job_id == job_id for slot in one.slots)
        }

    def explanation(self) -> str:
        overview = self.handle.call(self.handle.resource_manager.request_resource_overview())
        return overview.explanation
