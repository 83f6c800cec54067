"""Debloating over a whole exchange in virtual time: how long rows wait in front of a slow task."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.config import Settings
from headrace.core.record_batch import RecordBatch
from headrace.network.gate import BatchElement
from headrace.task.debloating import GateDebloating
from headrace.task.mailbox import MailboxTimers
from tests.unit.network.exchange import NUMBERS, gate, writer
from tests.unit.network.simulated import SimulatedCluster

ROWS_PER_MS = 100
BATCH_ROWS = 500


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    cluster = SimulatedCluster()
    yield cluster
    cluster.assert_nothing_leaks()


def stamped(now_ms: int) -> RecordBatch:
    column = pa.array(np.full(BATCH_ROWS, now_ms))
    return RecordBatch.of_columns(NUMBERS, pa.RecordBatch.from_arrays([column], names=["value"]))


def ages_ms(cluster: SimulatedCluster, is_local: bool, settings: Settings) -> list[int]:
    """How old rows are when a task that takes 100 of them a millisecond takes them, over 60 s."""
    producer, location = cluster.start("a")
    consumer = producer if is_local else cluster.start("b")[0]
    sink, source = writer(producer), gate(consumer, [location])
    source.request_partitions()
    clock, timers = cluster.loop.clock, MailboxTimers(cluster.loop.clock)
    GateDebloating([source], settings, timers, lambda: 0.0).start()
    ages: list[int] = []
    end_ms = clock.now_ms() + 60_000
    while clock.now_ms() < end_ms:
        while sink.is_available:
            sink.emit(stamped(clock.now_ms()))
        cluster.loop.run_for(0)
        timers.fire_due()
        element = source.poll()
        if element is None:
            cluster.loop.run_for(1)
            continue
        assert isinstance(element, BatchElement)
        ages.append(clock.now_ms() - element.batch.rows()[0])
        cluster.loop.run_for(element.batch.num_rows / ROWS_PER_MS)
    source.close()
    sink.close()
    return ages


@pytest.mark.parametrize("is_local", [False, True], ids=["remote", "local"])
def test_rows_in_front_of_a_slow_task_wait_about_the_target_and_not_longer(
    cluster: SimulatedCluster, is_local: bool
) -> None:
    settings = Settings(
        {
            "taskmanager.network.memory.buffer-debloat.enabled": "true",
            "taskmanager.network.memory.buffer-debloat.target": "200 ms",
        }
    )
    ages = ages_ms(cluster, is_local, settings)
    settled = ages[len(ages) // 2 :]
    # Producer and consumer each hold about what is wanted on its way.
    assert 50 <= sum(settled) / len(settled) <= 2.5 * 200
    assert max(settled) <= 3 * 200


@pytest.mark.parametrize("is_local", [False, True], ids=["remote", "local"])
def test_without_it_rows_wait_as_long_as_there_is_memory(
    cluster: SimulatedCluster, is_local: bool
) -> None:
    ages = ages_ms(cluster, is_local, Settings())
    assert min(ages[len(ages) // 2 :]) >= 1000
