"""Credit accounts of both sides of a channel: how much may be sent, and who holds which segments. Pure arithmetic.

The receiver owns `exclusive_count` segments per channel and shares floating ones among the channels of a gate. It
grants credit for segments it has set aside; the sender spends credit per segment of a batch. At every instant, for
every channel:

    sender's credit + data in flight + credit in flight + unannounced = idle exclusive + idle floating

Data therefore always finds room at the receiver, reading never has to stop, and one slow channel cannot hold up its
neighbours on a connection. Source: Flink RemoteInputChannel and BufferManager; beyond them, a batch may cost several
credits, a lone channel begins with all floating segments and keeps them, and whoever asks for floating segments queues
behind those who asked before (or two channels with giant rows could each hold half of what one of them needs). And
credit is not announced while the sender has plenty: one announcement for each batch would wake both sides once more
for it, which costs more than the batch where that is small.
"""

from collections import deque
from typing import Final

import msgspec


class CreditExceeded(Exception):
    """More credit was spent than granted; the caller adds channel and peer."""

    def __init__(self, granted: int, spent: int) -> None:
        super().__init__(f"{spent} credit(s) spent, but only {granted} granted")
        self.granted = granted
        self.spent = spent


class SenderAccount:
    """Credit that a producer has left on one channel, in segments."""

    __slots__ = ("announced_backlog", "credit", "is_stalled")

    def __init__(self, initial_credit: int) -> None:
        self.credit = initial_credit
        self.announced_backlog = 0
        self.is_stalled = False

    def spend(self, cost: int, backlog: int) -> None:
        """Record that data of `cost` segments is sent, which announces `backlog` more segments behind it."""
        if cost > self.credit:
            raise CreditExceeded(self.credit, cost)
        self.credit -= cost
        self.announced_backlog = backlog
        self.is_stalled = False

    def grant(self, credit_count: int) -> None:
        """Add `credit_count` from an AddCredit frame."""
        assert credit_count > 0
        self.credit += credit_count

    def must_announce(self, cost: int, backlog: int) -> bool:
        """Return whether to tell the consumer that its credit is too small for the next batch of `cost` segments.

        It is told at least once for each batch that waits although there is credit: the consumer may hold credit back
        because it does not know the batch's cost. Without any credit, the consumer owes some and learns the backlog
        with the data; a frame is then worth sending only if the backlog has grown much. Otherwise it would grant only
        for the queue as it was when the last credit was spent, and a long round trip would never be filled.
        """
        if self.credit >= cost:
            return False
        if self.credit == 0:
            is_due = backlog > 2 * self.announced_backlog + 1
        else:
            is_due = not self.is_stalled or backlog > self.announced_backlog
        if not is_due:
            return False
        self.announced_backlog = backlog
        self.is_stalled = self.credit > 0
        return True


class Charge(msgspec.Struct, frozen=True, gc=False):
    """Segments that one received batch occupies, by kind; returned once the task has taken the batch."""

    exclusive_count: int
    floating_count: int


class ReceiverAccount:
    """Segments of one channel at the receiver. Changed only through its GateCredits."""

    __slots__ = (
        "backlog",
        "held_exclusive",
        "held_floating",
        "idle_exclusive",
        "idle_floating",
        "is_open",
        "is_stalled",
        "is_waiting",
        "required",
        "unannounced",
    )

    def __init__(self) -> None:
        self.idle_exclusive = 0
        self.idle_floating = 0
        self.held_exclusive = 0
        self.held_floating = 0
        self.required = 0
        self.backlog = 0
        self.unannounced = 0
        self.is_open = False
        self.is_stalled = False
        self.is_waiting = False

    @property
    def available(self) -> int:
        """Segments set aside for data that is still to come."""
        return self.idle_exclusive + self.idle_floating

    @property
    def granted(self) -> int:
        """Available segments that the sender knows of, or will learn of from credit in flight."""
        return self.available - self.unannounced

    @property
    def in_flight(self) -> int:
        """Segments that hold batches or may receive one at any moment; a limit in flight bounds them."""
        return self.granted + self.held_exclusive + self.held_floating

    @property
    def has_plenty(self) -> bool:
        """Return whether the sender knows of half of the channel's segments, and of enough for its backlog."""
        granted = self.granted
        if self.is_stalled or granted < self.backlog:
            return False
        return 2 * granted >= self.available + self.held_exclusive + self.held_floating


class GateCredits:
    """Accounts of all remote channels of one gate, by channel index.

    Every method may free credit that must be announced; `take_announcements` collects it. Owned by one thread.
    """

    def __init__(self, channel_count: int, exclusive_count: int, floating_count: int) -> None:
        assert exclusive_count >= 1
        self.exclusive_count: Final = exclusive_count
        self.floating_count: Final = floating_count
        self.idle_floating = floating_count
        self.accounts: Final = [ReceiverAccount() for _ in range(channel_count)]
        self._waiting: deque[int] = deque()
        self._to_announce: dict[int, None] = {}
        self._in_flight_max: int | None = None

    @property
    def credit_max(self) -> int:
        """Most credit that one channel can hold at once."""
        return self.exclusive_count + self.floating_count

    @property
    def is_lone(self) -> bool:
        """Return whether the gate has a single channel, which then owns all segments."""
        return len(self.accounts) == 1

    def needs_settling(self, index: int) -> bool:
        """Return whether batches taken from this channel must be counted now, for its own credit or other channels.

        Any thread. If False, the count may wait until the sender is heard of again; see `has_plenty`.
        """
        account = self.accounts[index]
        is_wanted = bool(self._waiting) and not self.is_lone
        return is_wanted or (account.is_open and not account.has_plenty)

    def limit_in_flight(self, segment_count: int) -> None:
        """Announce credit to a channel only while it has fewer than `segment_count` segments in flight."""
        assert segment_count > 0
        self._in_flight_max = segment_count
        self._to_announce.update(dict.fromkeys(range(len(self.accounts))))

    def can_open(self, index: int) -> bool:
        """Return whether a closed channel would start with credit: not all of its segments hold earlier batches."""
        share = self.idle_floating if self.is_lone else 0
        return self.accounts[index].held_exclusive < self.exclusive_count or share > 0

    def open_channel(self, index: int) -> int:
        """Open a channel and return its initial credit, which need not be announced."""
        account = self.accounts[index]
        assert not account.is_open
        # Of several channels none may begin with floating segments: the credit cannot be taken back from a producer
        # that turns out to be idle, and a giant row elsewhere may need every one of them.
        share = self.idle_floating if self.is_lone else 0
        account.is_open = True
        # A reopened channel may still hold batches from before that the task has not taken yet.
        account.idle_exclusive = self.exclusive_count - account.held_exclusive
        account.idle_floating = share
        self.idle_floating -= share
        return account.available

    def data_received(self, index: int, credit_count: int, backlog: int) -> Charge:
        """Charge a batch of `credit_count` segments to the channel, and reserve for the `backlog` behind it."""
        account = self.accounts[index]
        if credit_count > account.granted:
            raise CreditExceeded(account.granted, credit_count)
        floating = min(credit_count, account.idle_floating)
        exclusive = credit_count - floating
        account.idle_floating -= floating
        account.idle_exclusive -= exclusive
        account.held_floating += floating
        account.held_exclusive += exclusive
        account.is_stalled = False
        self._require(account, index, backlog)
        return Charge(exclusive, floating)

    def backlog_announced(self, index: int, backlog: int) -> None:
        """Record that the sender lacks credit for its next batch.

        Aim at `backlog` segments despite any limit in flight.
        """
        self.accounts[index].is_stalled = True
        self._require(self.accounts[index], index, backlog)

    def _require(self, account: ReceiverAccount, index: int, backlog: int) -> None:
        """Aim at room for `backlog` segments in addition to the exclusive ones."""
        if not account.is_open:
            return
        account.backlog = backlog
        # No other channel needs the segments of a lone channel: its sender need not ask for them repeatedly.
        account.required = self.credit_max if self.is_lone else backlog + self.exclusive_count
        if account.unannounced:
            self._to_announce[index] = None
        if account.is_waiting or account.available >= account.required:
            return
        account.is_waiting = True
        self._waiting.append(index)
        self._serve_waiting()

    def batch_taken(self, index: int, charge: Charge) -> None:
        """Free the segments of a batch that the task has taken."""
        account = self.accounts[index]
        account.held_exclusive -= charge.exclusive_count
        account.held_floating -= charge.floating_count
        self.idle_floating += charge.floating_count
        if account.is_open:
            for _ in range(charge.exclusive_count):
                self._free_exclusive(index, account)
        self._serve_waiting()

    def close_channel(self, index: int) -> None:
        """Close the channel: others get its floating segments; its exclusive ones stay until the gate closes."""
        account = self.accounts[index]
        if not account.is_open:
            return
        account.is_open = False
        self.idle_floating += account.idle_floating
        account.idle_floating = account.idle_exclusive = 0
        account.required = account.backlog = account.unannounced = 0
        self._to_announce.pop(index, None)
        if account.is_waiting:
            account.is_waiting = False
            self._waiting.remove(index)
        self._serve_waiting()

    def take_announcements(self) -> list[tuple[int, int]]:
        """Return `(channel index, credit)` of newly available credit, and count it as announced.

        Skips a channel that has plenty: it is checked again when its sender is heard of.
        """
        announcements: list[tuple[int, int]] = []
        withheld: dict[int, None] = {}
        for index in self._to_announce:
            account = self.accounts[index]
            if account.has_plenty:
                continue
            announced = self._announceable(account)
            if announced:
                announcements.append((index, announced))
                account.unannounced -= announced
            if account.unannounced:
                withheld[index] = None
        self._to_announce = withheld
        return announcements

    def _announceable(self, account: ReceiverAccount) -> int:
        if self._in_flight_max is None or account.is_stalled:
            return account.unannounced
        return min(account.unannounced, max(0, self._in_flight_max - account.in_flight))

    def _free_exclusive(self, index: int, account: ReceiverAccount) -> None:
        account.idle_exclusive += 1
        if account.available > account.required and account.idle_floating > 0:
            # The exclusive segment replaces a floating one in the credit that the sender knows of.
            account.idle_floating -= 1
            self.idle_floating += 1
        else:
            self._announce(index, account, 1)

    def _serve_waiting(self) -> None:
        while self._waiting and self.idle_floating:
            index = self._waiting[0]
            account = self.accounts[index]
            wanted = max(0, account.required - account.available)
            taken = min(wanted, self.idle_floating)
            if taken:
                self.idle_floating -= taken
                account.idle_floating += taken
                self._announce(index, account, taken)
            if taken == wanted:
                account.is_waiting = False
                self._waiting.popleft()

    def _announce(self, index: int, account: ReceiverAccount, credit_count: int) -> None:
        account.unannounced += credit_count
        self._to_announce[index] = None
