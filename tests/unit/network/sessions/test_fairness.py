"""Deficit round robin by bytes: shares, starvation, and how long control frames and priority events wait."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.core.barriers import CheckpointBarrier, CheckpointOptions
from headrace.core.elements import EndOfData
from headrace.core.ids import ResultPartitionId
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.partitions.result_subpartition import DataElement, QueuedEvent
from headrace.network.sessions.consumer_session import ConsumerSession
from headrace.network.sessions.peer_session import PeerSession
from headrace.network.sessions.producer_session import FRAME_BYTES, QUANTUM_BYTES, ProducerSession
from headrace.network.wire.frames import AddCredit, Event, PartitionRequest
from headrace.network.wire.framing import decode_prefix
from tests.unit.network.exchange import partition_id

ZEROS = memoryview(bytes(2_000_000))
CREDIT = (1 << 32) - 1
Turn = tuple[int, int]
"""A channel, and the bytes of one frame that it sent."""


class Endless:
    """A view that has always something: batches of these sizes again and again, or events (None).

    Unless it `is_dry`; `urgent` events go first.
    """

    backlog = 0

    def __init__(self, channel: int, sizes: list[int | None], log: list[Turn]) -> None:
        self._channel = channel
        self._sizes = sizes
        self._log = log
        self._count = 0
        self.is_dry = False
        self.urgent: list[QueuedEvent] = []

    @property
    def has_priority_event(self) -> bool:
        return bool(self.urgent)

    def poll(self, credit: int) -> DataElement | QueuedEvent | None:
        if self.urgent:
            self._log.append((self._channel, FRAME_BYTES))
            return self.urgent.pop(0)
        if self.is_dry:
            return None
        size = self._sizes[self._count % len(self._sizes)]
        self._count += 1
        self._log.append((self._channel, FRAME_BYTES + (size or 0)))
        if size is None:
            return QueuedEvent(EndOfData())
        sealed = SealedBatch(None, ())
        sealed.size_bytes, sealed._body = size, ZEROS[:size]
        return DataElement(sealed, None, 1)

    def notify_in_flight_rows(self, in_flight_rows: int) -> None: ...

    def release(self) -> None: ...


class Views:
    """A ResultPartitionManager whose partition's subpartitions run dry only where a test says so."""

    def __init__(self, sizes: list[list[int | None]]) -> None:
        self.log: list[Turn] = []
        self.views: list[Endless] = []
        self.listeners: list[Callable[[], None]] = []
        self._sizes = sizes

    def create_view(
        self,
        _: ResultPartitionId,
        index: int,
        listener: Callable[[], None],
        segment_size: int,
        first_element: int,
    ) -> Endless:
        self.views.append(Endless(index, self._sizes[index], self.log))
        self.listeners.append(listener)
        return self.views[-1]


class SilentLink:
    peer = "peer"

    def wake(self) -> None: ...


def producer_of(
    sizes: list[list[int | None]], quantum: int = QUANTUM_BYTES
) -> tuple[ProducerSession, Views]:
    """A session whose channels 0, 1, … are all ready."""
    views: Any = Views(sizes)
    nothing: Any = None
    session = ProducerSession(views, nothing, SilentLink(), 0, quantum)
    for index in range(len(sizes)):
        session.partition_requested(
            PartitionRequest(index, partition_id(), index, CREDIT, CREDIT, 1 << 20)
        )
    return session, views


QUANTUM = 1024
"""In place of QUANTUM_BYTES: the laws are the same and the frames fewer."""

SIZES = st.lists(
    st.lists(
        st.integers(0, 4 * QUANTUM) | st.integers(0, 4 * QUANTUM) | st.integers(0, 20) | st.none(),
        min_size=1,
        max_size=4,
    ),
    min_size=2,
    max_size=5,
)
BUDGETS = st.lists(st.integers(1, 8 * QUANTUM), min_size=1, max_size=3)


def largest(sizes: list[int | None]) -> int:
    return FRAME_BYTES + max(size or 0 for size in sizes)


@example([[0], [2222]], [4270])
@given(SIZES, BUDGETS)
def test_always_ready_channels_differ_by_a_quantum_and_a_frame(
    sizes: list[list[int | None]], budgets: list[int]
) -> None:
    session, views = producer_of(sizes, QUANTUM)
    bound = QUANTUM + max(map(largest, sizes))
    for budget in budgets:
        before = sum(size for _, size in views.log)
        session.take_output(budget)
        sent = [0] * len(sizes)
        for channel, size in views.log:
            sent[channel] += size
        assert max(sent) - min(sent) <= bound
        assert sum(sent) - before < budget + bound


def wait_bound(sizes: list[list[int | None]], channel: int, quantum: int) -> int:
    """Most bytes that the others send between two frames of this channel.

    A channel sends while it is not in debt, so after its largest frame of `L` bytes the debt is below `L`. Each round
    pays `quantum` of it: with the `ceil(L / quantum)`th round it may send again. Another channel begins these `k`
    rounds with nothing saved (a turn ends in debt, or with nothing to send and 0) and ends them with a debt below its
    own largest frame `M`: it has sent less than `k * quantum + M`.
    """
    round_count = -(-largest(sizes[channel]) // quantum)
    others = sizes[:channel] + sizes[channel + 1 :]
    return sum(round_count * quantum + largest(other) - 1 for other in others)


def longest_wait(log: list[Turn], channel: int) -> int:
    longest = waited = 0
    for sender, size in log:
        waited = 0 if sender == channel else waited + size
        longest = max(longest, waited)
    return longest


@example([[0], [2222]], [4270])
@example([[0], [4 * QUANTUM], [None, 4 * QUANTUM]], [8 * QUANTUM] * 3)
@given(SIZES, BUDGETS)
def test_no_channel_starves_beyond_the_rounds_that_pay_for_its_own_last_frame(
    sizes: list[list[int | None]], budgets: list[int]
) -> None:
    session, views = producer_of(sizes, QUANTUM)
    for budget in budgets:
        session.take_output(budget)
    for channel in range(len(sizes)):
        assert longest_wait(views.log, channel) <= wait_bound(sizes, channel, QUANTUM)


@pytest.mark.parametrize(
    ("sizes", "round_count"),
    [([[4096], [200_000]], 1), ([[4096], [568_807]], 3), ([[4096], [2_000_000]], 8)],
)
def test_a_channel_whose_frames_exceed_a_turn_sends_one_whenever_its_rounds_have_paid_for_it(
    sizes: list[list[int | None]], round_count: int
) -> None:
    session, views = producer_of(sizes)
    session.take_output(20 << 20)
    waited = longest_wait(views.log, 1)
    assert (round_count - 1) * QUANTUM_BYTES < waited <= wait_bound(sizes, 1, QUANTUM_BYTES)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, 100, 4096])
def test_a_channel_of_tiny_batches_cannot_outdo_one_of_large_ones(size: int) -> None:
    session, views = producer_of([[size], [200_000]])
    for _ in range(20):
        session.take_output(1 << 20)
    frames = [sum(channel == index for channel, _ in views.log) for index in range(2)]
    share = frames[0] * (size + FRAME_BYTES) / (frames[1] * (200_000 + FRAME_BYTES))
    assert 0.9 <= share <= 1.1


def test_a_channel_that_was_asked_in_vain_saves_no_turns() -> None:
    session, views = producer_of([[100], [100]], QUANTUM)
    views.views[0].is_dry = True
    for _ in range(10):
        views.listeners[0]()
        session.take_output(QUANTUM)
    views.views[0].is_dry = False
    views.log.clear()
    views.listeners[0]()
    session.take_output(8 * QUANTUM)
    sent = [sum(size for channel, size in views.log if channel == index) for index in range(2)]
    # One was amid its turn when the other came back, and each may go a frame beyond its own.
    assert abs(sent[0] - sent[1]) <= QUANTUM + 2 * (FRAME_BYTES + 100)


def test_a_priority_event_does_not_wait_for_the_turns_of_others() -> None:
    session, views = producer_of([[4096]] * 4)
    # Channel 0 has just had its turn: the three others stand before it.
    session.take_output(1)
    views.log.clear()
    barrier = CheckpointBarrier(1, 0, CheckpointOptions())
    views.views[0].urgent.append(QueuedEvent(barrier, is_priority=True))
    views.listeners[0]()
    first = session.take_output(1)[0]
    assert decode_prefix(first, 0, "peer")[0] is Event
    assert views.log[:2] == [(0, FRAME_BYTES), (1, FRAME_BYTES + 4096)]


def test_a_control_frame_goes_ahead_of_all_data_that_was_not_taken_yet() -> None:
    producer, _ = producer_of([[100_000], [100_000]])
    consumer = ConsumerSession(SilentLink())
    session = PeerSession(SilentLink(), producer, consumer)
    receiver: Any = object()
    channel = consumer.open_channel(
        receiver,
        partition_id=partition_id(),
        subpartition_index=0,
        initial_credit=1,
        credit_max=1,
        segment_size=1,
    )
    session.take_output(1 << 20)
    consumer.add_credit(channel, 1)
    first = session.take_output(1 << 20)[0]
    assert decode_prefix(first, 0, "peer")[0] is AddCredit


def test_what_is_taken_at_once_keeps_control_frames_waiting_for_less_than_a_mebibyte() -> None:
    # Batches as they are sealed by default; 512 KiB is what a connection tops up to.
    session, _ = producer_of([[128 * 1024]] * 4)
    for _ in range(10):
        assert sum(len(part) for part in session.take_output(512 * 1024)) < 1 << 20


def test_output_is_left_exactly_where_the_budget_ended_before_the_readers_had_nothing_more() -> (
    None
):
    producer, views = producer_of([[4096]] * 2)
    session = PeerSession(SilentLink(), producer, ConsumerSession(SilentLink()))
    session.take_output(1)
    assert session.has_output_left
    for view in views.views:
        view.is_dry = True
    session.take_output(1 << 20)
    assert not session.has_output_left


def test_events_that_are_shorter_than_a_frame_counts_for_leave_no_output_unnoticed() -> None:
    producer, _ = producer_of([[None]], FRAME_BYTES)
    session = PeerSession(SilentLink(), producer, ConsumerSession(SilentLink()))
    budget_bytes = 10 * FRAME_BYTES
    # Who compared the bytes that were taken with the budget would believe that this was all.
    assert sum(map(len, session.take_output(budget_bytes))) < budget_bytes
    assert session.has_output_left
