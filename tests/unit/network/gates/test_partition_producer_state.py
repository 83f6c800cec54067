"""Partitions that are not found: the producer's state decides, and it always ends."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.ids import ResultPartitionId
from headrace.core.lifecycle import ExecutionState
from headrace.network.errors import PartitionNotFoundError
from headrace.network.gates.partition_requests import (
    AnswerVerdict,
    PartitionRequestBackoff,
    ProducerVerdict,
    verdict_on,
)
from headrace.network.gates.single_input_gate import SingleInputGate
from tests.unit.network.exchange import gate, numbers, partition_id, values_of, writer
from tests.unit.network.simulated import SimulatedCluster

ALIVE = ("SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "FINISHED")
OVER = ("CANCELING", "CANCELED", "FAILED")


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    cluster = SimulatedCluster()
    yield cluster
    cluster.assert_nothing_leaks()


def test_the_state_of_the_producer_decides() -> None:
    for state in ExecutionState:
        expected = ProducerVerdict.FAIL
        if state.name in ALIVE:
            expected = ProducerVerdict.ASK_AGAIN
        elif state.name in OVER:
            expected = ProducerVerdict.CANCEL
        assert verdict_on(state) is expected
    assert verdict_on(None) is ProducerVerdict.CANCEL


@given(st.floats(0, 1e5), st.floats(1, 1e5), st.floats(0, 1e5))
def test_asking_ends_within_the_bound(initial_ms: float, max_ms: float, parked_ms: float) -> None:
    retry = PartitionRequestBackoff(max(1.0, initial_ms), max_ms, parked_ms)
    spent_ms = last_ms = 0.0
    requests = 1
    while (delay_ms := retry.next_delay_ms()) is not None:
        assert last_ms <= delay_ms <= max_ms
        last_ms = delay_ms
        spent_ms += parked_ms + delay_ms
        requests += 1
        assert requests < 300_000
    assert spent_ms <= 2 * max_ms + max_ms + parked_ms


class Checks:
    """What a task would ask its JobMaster, answered by the test."""

    def __init__(self, source: SingleInputGate, *verdicts: ProducerVerdict | None) -> None:
        self.asked: list[ResultPartitionId] = []
        self._verdicts = list(verdicts)
        source.check_producers_with(self._check)

    def _check(self, partition: ResultPartitionId, answer: AnswerVerdict) -> None:
        self.asked.append(partition)
        verdict = self._verdicts.pop(0)
        if verdict is not None:
            answer(verdict)


def absent(cluster: SimulatedCluster, is_local: bool) -> tuple[SingleInputGate, Callable[[], None]]:
    """A gate of which the producer is not there yet, and what lets it come."""
    producer, location = cluster.start("a")
    source = gate(producer if is_local else cluster.start("b")[0], [location])

    def come() -> None:
        sink = writer(producer)
        sink.emit(numbers(0, 3))
        sink.finish()
        sink.close()

    return source, come


@pytest.mark.parametrize("is_local", [True, False])
def test_a_consumer_that_is_cancelled_for_its_producers_sake_reports_no_error_of_its_own(
    cluster: SimulatedCluster, is_local: bool
) -> None:
    source, _ = absent(cluster, is_local)
    checks = Checks(source, ProducerVerdict.CANCEL)
    source.request_partitions()
    cluster.loop.run_all()
    assert checks.asked == [partition_id()]
    assert source.poll() is None
    source.close()


@pytest.mark.parametrize("is_local", [True, False])
def test_a_consumer_of_a_producer_that_will_never_run_fails_at_once(
    cluster: SimulatedCluster, is_local: bool
) -> None:
    source, _ = absent(cluster, is_local)
    checks = Checks(source, ProducerVerdict.FAIL)
    source.request_partitions()
    cluster.loop.run_until(lambda: source.is_available)
    with pytest.raises(PartitionNotFoundError):
        source.poll()
    assert len(checks.asked) == 1
    # The producer's side of a remote channel had kept the request for its time, once.
    assert cluster.loop.clock.now_ms() <= (20_000 if is_local else 10_010)
    source.close()


def test_a_producer_that_is_still_on_its_way_is_asked_again_until_it_is_there(
    cluster: SimulatedCluster,
) -> None:
    source, come = absent(cluster, is_local=False)
    checks = Checks(source, ProducerVerdict.ASK_AGAIN)
    source.request_partitions()
    cluster.loop.run_for(15_000)
    assert len(checks.asked) == 1
    come()
    cluster.loop.run_until(lambda: source.is_available)
    element = source.poll()
    assert element is not None and values_of([element]) == [0, 1, 2]
    del element
    cluster.loop.run_all()
    assert source.poll() is not None and source.is_finished
    source.close()


@pytest.mark.parametrize("is_local", [True, False])
def test_a_producer_that_is_alive_and_never_registers_is_given_up_with_one_error(
    cluster: SimulatedCluster, is_local: bool
) -> None:
    source, _ = absent(cluster, is_local)
    Checks(source, ProducerVerdict.ASK_AGAIN, ProducerVerdict.ASK_AGAIN, ProducerVerdict.ASK_AGAIN)
    source.request_partitions()
    cluster.loop.run_all()
    assert 19_000 <= cluster.loop.clock.now_ms() <= 31_000
    with pytest.raises(PartitionNotFoundError):
        source.poll()
    source.close()


@pytest.mark.parametrize("is_local", [True, False])
def test_an_answer_that_never_comes_or_comes_too_late_does_no_harm(
    cluster: SimulatedCluster, is_local: bool
) -> None:
    source, _ = absent(cluster, is_local)
    late: list[AnswerVerdict] = []
    source.check_producers_with(lambda _, answer: late.append(answer))
    source.request_partitions()
    cluster.loop.run_all()
    assert source.poll() is None
    source.close()
    cluster.loop.run_all()
    (answer,) = late
    answer(ProducerVerdict.ASK_AGAIN)
    cluster.loop.run_all()
