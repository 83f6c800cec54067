"""Credit accounts: the conservation law under every order of events."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.core.randomness import SeededRandom
from headrace.network.flow.credit import Charge, CreditExceeded, GateCredits, SenderAccount


class Gate:
    """A gate and the senders of its channels, with what is on its way between them."""

    def __init__(self, channel_count: int, exclusive_count: int, floating_count: int) -> None:
        self.credits = GateCredits(channel_count, exclusive_count, floating_count)
        self.senders: list[SenderAccount | None] = [None] * channel_count
        self.queues: list[deque[int]] = [
            deque() for _ in range(channel_count)
        ]  # costs of batches that wait
        # Frames in the order of the wire: (cost, backlog behind it), or (0, backlog) where only that is told.
        self.data: list[deque[tuple[int, int]]] = [deque() for _ in range(channel_count)]
        self.grants: list[deque[int]] = [deque() for _ in range(channel_count)]
        self.held: list[deque[Charge]] = [deque() for _ in range(channel_count)]

    def open(self, index: int) -> None:
        self.senders[index] = SenderAccount(self.credits.open_channel(index))

    def announce(self) -> None:
        for index, credit_count in self.credits.take_announcements():
            self.grants[index].append(credit_count)

    def send(self, index: int) -> None:
        sender, queue = self.senders[index], self.queues[index]
        if sender is None or not queue:
            return
        if sender.credit >= queue[0]:
            cost = queue.popleft()
            sender.spend(cost, sum(queue))
            self.data[index].append((cost, sum(queue)))
        elif sender.must_announce(queue[0], sum(queue)):
            self.data[index].append((0, sum(queue)))

    def receive(self, index: int) -> None:
        if self.data[index]:
            cost, backlog = self.data[index].popleft()
            if cost:
                self.held[index].append(self.credits.data_received(index, cost, backlog))
            else:
                self.credits.backlog_announced(index, backlog)
        self.announce()

    def grant(self, index: int) -> None:
        sender = self.senders[index]
        if self.grants[index] and sender is not None:
            sender.grant(self.grants[index].popleft())

    def take(self, index: int) -> None:
        if self.held[index]:
            self.credits.batch_taken(index, self.held[index].popleft())
            self.announce()

    def close(self, index: int) -> None:
        self.credits.close_channel(index)
        self.senders[index] = None
        for queue in (self.queues, self.data, self.grants):
            queue[index].clear()  # type: ignore[attr-defined]
        self.announce()


def assert_nothing_is_hoarded(credits: GateCredits) -> None:
    """Whoever wants no more than its own segments keeps no floating ones from others, nor does the gate."""
    for account in credits.accounts:
        is_lone = len(credits.accounts) == 1
        if account.is_open and not is_lone and account.required <= credits.exclusive_count:
            # Those that its sender knows of in place of exclusive ones go back as the task takes these.
            assert account.idle_floating <= account.held_exclusive
    assert not (credits.idle_floating and any(each.is_waiting for each in credits.accounts))


class Conservation(RuleBasedStateMachine):
    """Channels that open, queue, send, receive, take and close in any order."""

    channels = st.integers(0, 2)

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate(3, 1, 4)

    @rule(index=channels)
    def open(self, index: int) -> None:
        if not self.gate.credits.accounts[index].is_open and not self.gate.held[index]:
            self.gate.open(index)

    @rule(index=channels, cost=st.sampled_from([1, 1, 1, 2, 5]))
    def queue(self, index: int, cost: int) -> None:
        self.gate.queues[index].append(cost)

    @rule(index=channels)
    def send(self, index: int) -> None:
        self.gate.send(index)

    @rule(index=channels)
    def receive(self, index: int) -> None:
        self.gate.receive(index)

    @rule(index=channels)
    def grant(self, index: int) -> None:
        self.gate.grant(index)

    @rule(index=channels)
    def take(self, index: int) -> None:
        self.gate.take(index)

    @rule(segment_count=st.integers(1, 6))
    def limit(self, segment_count: int) -> None:
        self.gate.credits.limit_in_flight(segment_count)
        self.gate.announce()

    @precondition(lambda self: any(account.is_open for account in self.gate.credits.accounts))
    @rule(index=channels)
    def close(self, index: int) -> None:
        self.gate.close(index)

    @invariant()
    def every_segment_is_somewhere(self) -> None:
        credits = self.gate.credits
        floating = credits.idle_floating
        for index, account in enumerate(credits.accounts):
            floating += account.idle_floating + account.held_floating
            sender = self.gate.senders[index]
            if sender is not None:
                in_flight = sum(cost for cost, _ in self.gate.data[index])
                granted = sender.credit + in_flight + sum(self.gate.grants[index])
                assert granted + account.unannounced == account.available
                assert account.idle_exclusive + account.held_exclusive == credits.exclusive_count
        assert floating == credits.floating_count

    @invariant()
    def nothing_is_negative(self) -> None:
        assert self.gate.credits.idle_floating >= 0
        for account in self.gate.credits.accounts:
            values = (
                account.idle_exclusive,
                account.idle_floating,
                account.unannounced,
                account.granted,
            )
            assert min(*values, account.held_exclusive, account.held_floating) >= 0

    @invariant()
    def who_wants_no_more_than_its_own_keeps_no_floating_segments_from_others(self) -> None:
        assert_nothing_is_hoarded(self.gate.credits)


Conservation.TestCase.settings = settings(stateful_step_count=50)
TestConservation = Conservation.TestCase


@given(
    st.sampled_from([1, 2, 3]),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, 1, 2, 5])), max_size=30),
    st.integers(0, 1000),
    st.sampled_from([None, 1, 2, 3]),
)
def test_every_batch_is_delivered_while_the_task_keeps_taking(
    channel_count: int, batches: list[tuple[int, int]], seed: int, limit: int | None
) -> None:
    random = SeededRandom(seed)
    gate = Gate(channel_count, 1, 4)
    if limit is not None:
        gate.credits.limit_in_flight(limit)
    for index in range(channel_count):
        gate.open(index)
    for index, cost in batches:
        gate.queues[index % channel_count].append(cost)
    steps = [gate.send, gate.receive, gate.grant, gate.take]
    for _ in range(20 * len(batches)):
        random.choice(steps)(random.randrange(channel_count))
        assert_nothing_is_hoarded(gate.credits)
    for _ in range(10 * len(batches)):
        for index in range(channel_count):
            for step in steps:
                step(index)
    assert not any(gate.queues)
    # A lone channel keeps them all.
    kept = gate.credits.accounts[0].idle_floating if channel_count == 1 else 0
    assert gate.credits.idle_floating + kept == 4


@pytest.mark.parametrize(("channel_count", "most"), [(1, 5), (3, 20)])
def test_a_sender_with_plenty_is_told_of_credit_now_and_then(channel_count: int, most: int) -> None:
    gate = Gate(channel_count, 2, 8)
    gate.open(0)
    announcements = 0
    for _ in range(20):
        gate.queues[0].append(1)
        sender = gate.senders[0]
        assert sender is not None and sender.credit >= 1
        gate.send(0)
        gate.receive(0)
        gate.take(0)
        announcements += len(gate.grants[0])
        gate.grant(0)
    assert announcements <= most


def test_a_sender_that_tells_of_a_backlog_is_given_all_the_credit_there_is() -> None:
    gate = Gate(1, 2, 8)
    gate.open(0)
    account = gate.credits.accounts[0]
    gate.queues[0].append(1)
    gate.send(0)
    gate.receive(0)
    gate.take(0)
    assert (account.granted, account.unannounced, len(gate.grants[0])) == (9, 1, 0)
    gate.credits.backlog_announced(0, 12)
    gate.announce()
    assert (account.granted, account.unannounced) == (10, 0)


def test_floating_segments_follow_the_backlog_and_come_back() -> None:
    gate = Gate(1, 2, 8)
    gate.open(0)
    account, sender = gate.credits.accounts[0], gate.senders[0]
    assert sender is not None
    # A lone channel begins with all floating segments beside its own.
    assert sender.credit == 10
    gate.queues[0].extend([1] * 5)
    for _ in range(5):
        gate.send(0)
        gate.receive(0)
    assert account.held_floating == 5
    while gate.held[0]:
        gate.take(0)
    gate.grant(0)
    assert gate.credits.idle_floating + account.idle_floating == 8


def test_data_without_credit_is_an_error() -> None:
    credits = GateCredits(1, 2, 0)
    credits.open_channel(0)
    with pytest.raises(CreditExceeded) as caught:
        credits.data_received(0, 3, 0)
    assert (caught.value.granted, caught.value.spent) == (2, 3)
    with pytest.raises(CreditExceeded):
        SenderAccount(1).spend(2, 0)


def test_a_giant_batch_is_announced_once() -> None:
    sender = SenderAccount(2)
    assert sender.must_announce(5, 7)
    assert not sender.must_announce(5, 7)


def test_without_credit_the_consumer_is_told_only_when_much_more_waits_than_it_knows_of() -> None:
    sender = SenderAccount(1)
    sender.spend(1, 2)
    assert [backlog for backlog in range(3, 20) if sender.must_announce(1, backlog)] == [6, 14]


def test_who_asks_first_is_served_first() -> None:
    credits = GateCredits(2, 1, 4)
    for index in range(2):
        credits.open_channel(index)
    credits.backlog_announced(0, 9)
    credits.backlog_announced(1, 9)
    assert credits.take_announcements() == [(0, 4)]
    charges = [credits.data_received(0, 1, 9)]
    credits.batch_taken(0, charges[0])
    assert [index for index, _ in credits.take_announcements()] == [0]


def test_a_limit_in_flight_holds_credit_back_until_batches_were_taken() -> None:
    gate = Gate(1, 2, 8)
    gate.credits.limit_in_flight(3)
    gate.open(0)
    gate.queues[0].extend([1] * 30)
    most = 0
    while gate.queues[0] or gate.held[0]:
        while gate.senders[0] is not None and gate.senders[0].credit and gate.queues[0]:
            gate.send(0)
            gate.receive(0)
            gate.grant(0)
        # The initial credit was given before anybody knew how slow the task is.
        if len(gate.queues[0]) < 20:
            most = max(most, len(gate.held[0]))
        gate.take(0)
        gate.grant(0)
    assert most == 3


@given(
    exclusive=st.integers(1, 4),
    floating=st.integers(0, 4),
    batches=st.lists(st.integers(1, 3), max_size=6),
    taken=st.integers(0, 6),
)
def test_a_channel_that_is_opened_again_has_no_more_segments_than_before(
    exclusive: int, floating: int, batches: list[int], taken: int
) -> None:
    credits = GateCredits(1, exclusive, floating)
    account = credits.accounts[0]
    credits.open_channel(0)
    charges: list[Charge] = []
    for credit_count in batches:
        if credit_count <= account.granted:
            charges.append(credits.data_received(0, credit_count, 0))
    credits.close_channel(0)
    for _ in range(min(taken, len(charges))):
        credits.batch_taken(0, charges.pop(0))
    if credits.can_open(0):
        assert credits.open_channel(0) > 0
    else:
        assert account.held_exclusive == exclusive and account.held_floating == floating
    for charge in charges:
        assert account.available + account.held_exclusive + account.held_floating <= (
            exclusive + floating
        )
        credits.batch_taken(0, charge)
    credits.close_channel(0)
    assert (account.held_exclusive, account.held_floating) == (0, 0)
    assert credits.idle_floating == floating
