"""When the transport's thread is woken to count what a task took, and that nobody is left without credit."""

from collections.abc import Callable
from typing import Any, cast

from headrace.network.flow.credit import Charge
from headrace.network.gates.buffer_manager import BufferManager
from headrace.network.memory.network_buffer_pool import Reservation


class HandTransport:
    """Keeps what is posted until `run`."""

    def __init__(self) -> None:
        self.posted: list[Callable[[], None]] = []

    def post(self, callback: Callable[[], None]) -> None:
        self.posted.append(callback)

    def run(self) -> None:
        posted, self.posted = self.posted, []
        for callback in posted:
            callback()


class CountingChannel:
    def __init__(self) -> None:
        self.granted = 0

    def grant(self, credit_count: int) -> None:
        self.granted += credit_count


class NoReservation:
    segment_size = 1
    region = None
    count = 0


class Gate:
    def __init__(self, channel_count: int) -> None:
        self.transport = HandTransport()
        self.channels = {index: CountingChannel() for index in range(channel_count)}
        self.receiver = BufferManager(
            cast(Any, self.transport), channel_count, 2, 8, cast(Reservation, NoReservation())
        )
        self.receiver.serve({index: each.grant for index, each in self.channels.items()})
        for index in range(channel_count):
            self.receiver.credits.open_channel(index)

    def receive(self, index: int, backlog: int = 0) -> Charge:
        charge = self.receiver.credits.data_received(index, 1, backlog)
        self.receiver.heard_of(index)
        return charge


def test_a_task_that_takes_all_that_comes_wakes_nobody_while_its_producer_has_plenty() -> None:
    gate = Gate(1)
    for _ in range(50):
        gate.receiver.batch_taken(0, gate.receive(0))
        gate.receiver.flush()
        assert not gate.transport.posted
        assert gate.receiver.used_count == 0
    assert gate.receiver.credits.accounts[0].granted > 0
    assert gate.channels[0].granted >= 40


def test_what_was_taken_is_counted_at_once_where_the_producer_has_little_left() -> None:
    gate = Gate(1)
    charges = [gate.receive(0) for _ in range(10)]
    gate.receiver.batch_taken(0, charges[0])
    gate.receiver.flush()
    gate.transport.run()
    assert gate.channels[0].granted == 1


def test_a_producer_that_lacks_credit_for_its_next_batch_is_given_what_was_taken() -> None:
    gate = Gate(1)
    for _ in range(3):
        gate.receiver.batch_taken(0, gate.receive(0))
        gate.receiver.flush()
    gate.receiver.credits.backlog_announced(0, 10)
    gate.receiver.heard_of(0)
    assert gate.receiver.credits.accounts[0].granted == 10
    gate.receive(0, backlog=10)
    last = gate.receive(0, backlog=10)
    gate.receiver.batch_taken(0, last)
    gate.receiver.flush()
    gate.transport.run()
    assert gate.receiver.credits.accounts[0].granted == 9


def test_shared_segments_go_back_as_soon_as_the_task_took_them() -> None:
    gate = Gate(2)
    gate.receiver.credits.backlog_announced(0, 8)
    gate.receiver.heard_of(0)
    charge = gate.receive(0)
    assert charge == Charge(0, 1)
    gate.receiver.batch_taken(0, charge)
    gate.receiver.flush()
    gate.transport.run()
    assert gate.receiver.credits.accounts[0].held_floating == 0


def test_segments_that_others_wait_for_are_given_back_although_their_own_producer_has_plenty() -> (
    None
):
    gate = Gate(2)
    gate.receiver.batch_taken(1, gate.receive(1))
    gate.receiver.flush()
    assert not gate.transport.posted
    gate.receiver.credits.backlog_announced(0, 20)
    gate.receiver.heard_of(0)
    assert gate.receiver.credits.accounts[1].held_exclusive == 0
