"""A task that stands still although it has work is described: queues, credit and memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.config import Settings
from headrace.network.metrics import describe_exchange
from headrace.task.mailbox import MailboxTimers
from headrace.task.watchdog import STALL_TIMEOUT, StallDetector, TaskWatchdog
from tests.unit.network.exchange import gate, numbers, writer
from tests.unit.network.simulated import SimulatedCluster


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.booleans()), max_size=40))
def test_a_stall_is_told_once_and_only_after_the_timeout(
    looks: list[tuple[int, bool, bool]],
) -> None:
    detector = StallDetector(100, 0)
    now_ms = progress = still_ms = 0
    is_told = False
    for pause_ms, moves, has_work in looks:
        now_ms += pause_ms
        progress += moves
        is_first = now_ms == pause_ms
        if moves or not has_work or is_first:
            still_ms, is_told = 0, False
        else:
            still_ms += pause_ms
        expected = still_ms >= 100 and not is_told
        assert detector.look(now_ms, progress, has_work) == expected
        is_told = is_told or expected


@pytest.mark.parametrize("timeout", ["60 s", "0 s"])
def test_a_task_whose_consumer_stands_still_is_described_with_its_full_output(timeout: str) -> None:
    cluster = SimulatedCluster()
    producer, location = cluster.start("a")
    sink, source = writer(producer, buffer_timeout_ms=0), gate(cluster.start("b")[0], [location])
    source.request_partitions()
    told: list[str] = []
    timers = MailboxTimers(cluster.loop.clock)
    settings = Settings({STALL_TIMEOUT.key: timeout})
    TaskWatchdog("map (1)", [], [sink], settings, timers, told.append).start()
    while sink.is_available:
        sink.emit(numbers(0, 10))
        cluster.loop.run_for(10)
    for _ in range(30):
        cluster.loop.run_for(10_000)
        timers.fire_due()
    if timeout == "0 s":
        assert told == []
    else:
        (text,) = told
        assert "task 'map (1)' has made no progress for 60 s" in text
        assert "10 elements" in text and "full" in text
        assert "subpartition 0: 10 queued, backlog 10" in text
    # The consumer's half says that it holds all that it ever granted.
    assert "granted 0, unannounced 0, held 10" in describe_exchange([source], [])
    sink.close()
    source.close()
    assert "closed" in describe_exchange([source], [sink.partition]) or cluster.loop.step()
    cluster.assert_nothing_leaks()
    assert "destroyed" in describe_exchange([source], [sink.partition])
