"""The worked example of protocol.md: the accounts of the code are run and what they hold is written down."""

from collections import deque
from typing import Final

from headrace.network.flow.credit import Charge, GateCredits, SenderAccount
from headrace.network.memory.sizing import BUFFERS_PER_CHANNEL, FLOATING_BUFFERS_PER_GATE
from tools.pages.markdown import table

_QUEUED_BATCHES: Final = 13
_TAKEN_AT_ONCE: Final = 4


class _Example:
    """A gate with two remote channels; channel 0 is read from producer A, which has more than it may send."""

    def __init__(self) -> None:
        self.gate = GateCredits(2, BUFFERS_PER_CHANNEL.default, FLOATING_BUFFERS_PER_GATE.default)
        self.sender = SenderAccount(self.gate.open_channel(0))
        self.gate.open_channel(1)
        self.queued_count = _QUEUED_BATCHES
        self.charges: deque[Charge] = deque()
        self.rows: list[tuple[str, ...]] = []
        self.note("both channels are requested")

    def note(self, event: str) -> None:
        """Write down where everything is after `event`."""
        account = self.gate.accounts[0]
        counts = (
            self.queued_count,
            self.sender.credit,
            account.held_exclusive + account.held_floating,
            self.gate.idle_floating,
        )
        self.rows.append((event, *map(str, counts)))

    def send(self) -> None:
        """A sends what it has credit for; the batches arrive."""
        sent = 0
        while self.queued_count and self.sender.credit:
            self.queued_count -= 1
            self.sender.spend(1, self.queued_count)
            self.charges.append(self.gate.data_received(0, 1, self.queued_count))
            sent += 1
        self.note(f"A sends {_batches(sent)}; the last says backlog {self.queued_count}")

    def announce(self) -> None:
        """What the consumer has for A reaches A."""
        for index, credit_count in self.gate.take_announcements():
            assert index == 0
            self.sender.grant(credit_count)
            self.note(f"`AddCredit` {credit_count}")

    def take(self) -> None:
        """The task takes batches of A out of the gate."""
        count = min(_TAKEN_AT_ONCE, len(self.charges))
        for _ in range(count):
            self.gate.batch_taken(0, self.charges.popleft())
        self.note(f"the task takes {_batches(count)}")


def credit_example() -> list[str]:
    """Run the example to its end and return it as a table."""
    example = _Example()
    while example.queued_count:
        example.send()
        if example.queued_count and not example.gate.accounts[0].unannounced:
            example.take()
        example.announce()
    while example.charges:
        example.take()
        example.announce()
    headings = ("what happens", "waiting at A", "A's credit", "of A in the gate", "floating, free")
    return table(headings, example.rows)


def _batches(count: int) -> str:
    return "1 batch" if count == 1 else f"{count} batches"
