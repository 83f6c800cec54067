"""A job with exactly the network memory that it can be deployed with, in threads that wait."""

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.common import Types, WatermarkStrategy
from headrace.connectors.datagen.source import NumberSequenceSource
from headrace.core.lifecycle import ExecutionState
from headrace.graph.stream_graph import StreamGraph
from tests.unit.task.local_job import LocalJob

PARALLELISM = 3
COUNT = 3000
PAGE = 32 * 1024
# Two keyed edges, and for each subtask that writes to one: a segment per consumer, and one.
LEAST_PAGES = 2 * PARALLELISM * (PARALLELISM + 1)


def chain_of_keyed_edges() -> StreamGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(PARALLELISM).set_buffer_timeout(0)
    numbers = env.from_source(
        NumberSequenceSource(1, COUNT), WatermarkStrategy.no_watermarks(), "numbers"
    )
    (
        numbers.key_by(lambda n: n % 7, key_type=Types.LONG())
        .map(lambda n: n + 1, output_type=Types.LONG())
        .key_by(lambda n: n % 5, key_type=Types.LONG())
        .filter(lambda n: n % 1000 == 0)
        .print()
    )
    return env.get_stream_graph()


def memory_of(pages: int) -> dict[str, str]:
    names = ("taskmanager.memory.network.min", "taskmanager.memory.network.max")
    return dict.fromkeys(names, f"{pages * PAGE}b")


def test_a_chain_of_keyed_edges_gets_through_with_the_least_memory(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with LocalJob(chain_of_keyed_edges(), memory_of(LEAST_PAGES)) as job:
        pool = job.shuffle.buffer_pool
        assert pool.unreserved_pages == 0
        job.run()
        assert job.final_states() == {ExecutionState.FINISHED}
        assert pool.idle_pages == LEAST_PAGES
    printed = [line.rpartition("> ")[2] for line in capfd.readouterr().out.split("\n") if line]
    assert sorted(printed) == ["1000", "2000", "3000"]
