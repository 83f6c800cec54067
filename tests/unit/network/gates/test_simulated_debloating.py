"""Debloating over a whole exchange in virtual time: how long rows wait in front of a slow task."""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.record_batch import RecordBatch
from headrace.network.gates.gate import BatchElement
from headrace.task.input.gate_debloating import GateDebloating
from headrace.task.mailbox import MailboxTimers
from tests.unit.network.exchange import NUMBERS, gate, writer
from tests.unit.network.simulated import SimulatedCluster

SHORTEST_LOOK_MS = 20
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
    debloating = GateDebloating([source], settings, timers, clock.monotonic_ms)
    debloating.start()
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
        if debloating.is_resting:
            debloating.resume()
    source.close()
    sink.close()
    return ages


@pytest.mark.slow
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
    assert 50 <= sum(settled) / len(settled) <= 1.25 * 200
    assert max(settled) <= 1.5 * 200


@pytest.mark.slow
@pytest.mark.parametrize("is_local", [False, True], ids=["remote", "local"])
def test_without_it_rows_wait_as_long_as_there_is_memory(
    cluster: SimulatedCluster, is_local: bool
) -> None:
    settings = Settings({"taskmanager.network.memory.buffer-debloat.enabled": "false"})
    ages = ages_ms(cluster, is_local, settings)
    assert min(ages[len(ages) // 2 :]) >= 1000


class ScriptedGate:
    """Takes in what it is told, and notes what it was to limit itself to, and when."""

    number_of_channels = 4
    capacity_bytes = 1 << 26

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.records_in = self.bytes_in = 0
        self.queued_bytes = 1
        self.limits: list[tuple[int, int]] = []

    def limit_in_flight(self, row_count: int) -> None:
        self.limits.append((self._clock.now_ms(), row_count))


TURNS = st.lists(
    st.tuples(st.integers(0, 700), st.integers(0, 1 << 22), st.integers(0, 1 << 22)),
    min_size=50,
    max_size=200,
)


@given(TURNS)
def test_a_gate_is_limited_at_most_once_a_look_however_late_its_mailbox_is(
    turns: list[tuple[int, int, int]],
) -> None:
    clock = ManualClock(1_000_000)
    gates, timers = [ScriptedGate(clock), ScriptedGate(clock)], MailboxTimers(clock)
    settings = Settings(
        {
            "taskmanager.network.memory.buffer-debloat.enabled": "true",
            "taskmanager.network.memory.buffer-debloat.samples": "1",
            "taskmanager.network.memory.buffer-debloat.threshold-percentages": "0",
        }
    )
    debloating = GateDebloating(cast(Any, gates), settings, timers, clock.monotonic_ms)
    debloating.start()
    for elapsed_ms, *taken in turns:
        clock.advance_ms(elapsed_ms)
        for made, taken_rows in zip(gates, taken, strict=True):
            made.records_in += taken_rows
            made.bytes_in += 8 * taken_rows
        timers.fire_due()
        if debloating.is_resting:
            debloating.resume()
    for made in gates:
        assert all(made.number_of_channels <= row_count for _, row_count in made.limits)
        times = [time_ms for time_ms, _ in made.limits]
        for first, sixth in zip(times, times[5:], strict=False):
            assert sixth - first >= 5 * SHORTEST_LOOK_MS
