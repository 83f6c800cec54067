"""Whose turn it is on one connection: fairness as in reference section 7, by bytes as in section 20.3."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.network.frame_cutter import FrameCutter
from headrace.network.producer_session import QUANTUM_BYTES, ProducerSession
from headrace.network.wire import AddCredit, Data, PartitionRequest
from tests.unit.network.exchange import numbers, partition_id, writer
from tests.unit.network.simulated import SimulatedCluster

SEGMENT = 1 << 20


class NoLink:
    """A connection that nobody empties but the test."""

    peer = "the consumer"

    def wake(self) -> None:
        """The test takes output when it likes."""


class Producer:
    """Partitions with batches of `row_counts` rows each, all requested over one connection."""

    def __init__(self, row_counts: list[int], batch_count: int, credits: list[int]) -> None:
        self.cluster = SimulatedCluster()
        environment, _ = self.cluster.start("a")
        self.session = ProducerSession(
            environment.partitions, environment.transport, NoLink(), 1000, environment.task_events
        )
        self.cutter = FrameCutter("a")
        self.order: list[int] = []
        self.bytes_by_channel: Counter[int] = Counter()
        self.sinks = []
        for channel, (rows, credit) in enumerate(zip(row_counts, credits, strict=True)):
            sink = writer(environment, number=channel, buffer_timeout_ms=0)
            request = PartitionRequest(channel, partition_id(channel), 0, credit, 1 << 20, SEGMENT)
            self.session.partition_requested(request)
            for number in range(batch_count):
                sink.emit(numbers(number * rows, rows))
            self.sinks.append(sink)

    def take(self, budget_bytes: int) -> int:
        """Take output; return how many bytes of rows it was."""
        data = b"".join(bytes(part) for part in self.session.take_output(budget_bytes))
        taken = 0
        for cut in self.cutter.cut(data):
            if isinstance(cut.frame, Data):
                self.order.append(cut.frame.channel)
                size = len(cut.raw)
                self.bytes_by_channel[cut.frame.channel] += size
                taken += size
        return taken

    def close(self) -> None:
        self.session.close()
        for sink in self.sinks:
            sink.close()
        self.cluster.assert_nothing_leaks()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([10, 500, 4000, 60_000]), min_size=2, max_size=5))
def test_channels_that_are_always_ready_get_the_same_bytes_whatever_the_size_of_their_batches(
    row_counts: list[int],
) -> None:
    made = Producer(row_counts, 10, [1 << 20] * len(row_counts))
    # One may have had its turn when another has not, and each turn may end with a batch too much.
    bound = QUANTUM_BYTES + 2 * (max(row_counts) * 8 + 1000)
    while made.take(64 * 1024):
        ready = [k for k in range(len(row_counts)) if made.order.count(k) < 10]
        sent = [made.bytes_by_channel[k] for k in ready]
        assert not sent or max(sent) - min(sent) <= bound
    assert Counter(made.order) == dict.fromkeys(range(len(row_counts)), 10)
    made.close()


def test_who_has_no_credit_holds_nobody_up_and_is_served_once_it_has() -> None:
    made = Producer([100, 100, 100], 10, [1, 1000, 1000])
    while made.take(64 * 1024):
        pass
    assert Counter(made.order) == {0: 1, 1: 10, 2: 10}
    made.session.channel_message_received(AddCredit(0, 9))
    while made.take(64 * 1024):
        pass
    assert Counter(made.order) == {0: 10, 1: 10, 2: 10}
    made.close()


@pytest.mark.parametrize("budget_bytes", [1, 64 * 1024, 1 << 30])
def test_what_is_taken_at_once_is_bounded_by_the_budget_and_one_turn(budget_bytes: int) -> None:
    made = Producer([30_000] * 4, 10, [1000] * 4)
    while taken := made.take(budget_bytes):
        assert taken <= budget_bytes + QUANTUM_BYTES + 30_000 * 8 + 1000
    assert Counter(made.order) == dict.fromkeys(range(4), 10)
    made.close()
