"""A task whose output is full does nothing until somebody reads, and then goes on by itself."""

from collections import deque
from collections.abc import Callable

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.common import WatermarkStrategy
from headrace.connectors.datagen.source import NumberSequenceSource
from headrace.core.lifecycle import ExecutionState
from headrace.network.memory.local_buffer_pool import NeverWait
from testkit.simulation.cooperative_task_runner import CooperativeTaskRunner
from tests.unit.task.local_job import LocalJob

COUNT = 400_000


class Turns:
    """Runs what tasks want to do at once, until none wants anything; what they want later does not come."""

    def __init__(self) -> None:
        self._due: deque[Callable[[], None]] = deque()

    def schedule(self, delay_ms: float, step: Callable[[], None]) -> None:
        if delay_ms == 0:
            self._due.append(step)

    def run(self) -> None:
        while self._due:
            self._due.popleft()()


def test_a_producer_stops_between_two_batches_while_nobody_reads(
    capfd: pytest.CaptureFixture[str],
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1).set_buffer_timeout(0)
    numbers = env.from_source(
        NumberSequenceSource(1, COUNT), WatermarkStrategy.no_watermarks(), "numbers"
    )
    numbers.rescale().filter(lambda n: n % 200_000 == 0).print()
    turns = Turns()
    # A task that did not look would want memory in the middle of a batch, and NeverWait would tell.
    runner = CooperativeTaskRunner(turns.schedule)
    with LocalJob(env.get_stream_graph(), runner=runner, wait=NeverWait()) as job:
        producer, consumer = job.tasks
        producer.start()
        turns.run()
        assert job.listener.errors == []
        assert job.final_states() == {ExecutionState.RUNNING}
        emitted = producer.metrics_snapshot()["numRecordsOut"]
        assert 0 < emitted < COUNT
        turns.run()
        assert producer.metrics_snapshot()["numRecordsOut"] == emitted
        consumer.start()
        turns.run()
        assert job.final_states() == {ExecutionState.FINISHED}
    assert capfd.readouterr().out.split() == ["200000", "400000"]
