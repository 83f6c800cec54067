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
    """More was spent than had been granted; the caller names channel and peer."""

    def __init__(self, granted: int, spent: int) -> None:
        super().__init__(f"{spent} spent of {granted}")
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
        """Take note that data of `cost` segments leaves and tells of `backlog` segments behind it."""
        if cost > self.credit:
            raise CreditExceeded(self.credit, cost)
        self.credit -= cost
        self.announced_backlog = backlog
        self.is_stalled = False

    def grant(self, credit_count: int) -> None:
        """Take an AddCredit."""
        assert credit_count > 0
        self.credit += credit_count

    def must_announce(self, cost: int, backlog: int) -> bool:
        """Return whether to tell the consumer that its credit does not suffice for the next batch, of `cost` segments.

        It is told at least once for each batch that has to wait although there is credit: it may hold credit back, not
        knowing the batch's cost. Without any credit left it owes us some, and learns of the backlog with the data that
        it pays for; only where much more waits by now than it knows of is it worth a frame. Else it would grant for
        what stood in the queue when the last credit was spent, and a long round trip would never be filled.
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
    """Segments that one received batch occupies, by kind: to be handed back once it was taken."""

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
        """Segments set aside for data to come."""
        return self.idle_exclusive + self.idle_floating

    @property
    def granted(self) -> int:
        """Segments among these that the sender knows of, or will learn of from a credit on its way."""
        return self.available - self.unannounced

    @property
    def in_flight(self) -> int:
        """Segments that hold batches, or may at any moment: what a limit in flight bounds."""
        return self.granted + self.held_exclusive + self.held_floating

    @property
    def has_plenty(self) -> bool:
        """Return whether the sender knows of half of what the channel has, and of enough for all that it told of."""
        granted = self.granted
        if self.is_stalled or granted < self.backlog:
            return False
        return 2 * granted >= self.available + self.held_exclusive + self.held_floating


class GateCredits:
    """Accounts of all remote channels of one gate, by channel index.

    Every method may raise credit that is to be announced; `take_announcements` collects it. Owned by one thread.
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
        """The most that one channel can ever be granted at once."""
        return self.exclusive_count + self.floating_count

    @property
    def is_lone(self) -> bool:
        """Return whether the gate has a single channel: all segments are its own."""
        return len(self.accounts) == 1

    def needs_settling(self, index: int) -> bool:
        """Return whether what the task took of this channel is to be counted now: credit, or others, may wait for it.

        Any thread. Who is told otherwise may let it be until the sender is heard of again. See `has_plenty`.
        """
        account = self.accounts[index]
        is_wanted = bool(self._waiting) and not self.is_lone
        return is_wanted or (account.is_open and not account.has_plenty)

    def limit_in_flight(self, segment_count: int) -> None:
        """Announce credit to a channel only as long as it has fewer than `segment_count` in flight."""
        assert segment_count > 0
        self._in_flight_max = segment_count
        self._to_announce.update(dict.fromkeys(range(len(self.accounts))))

    def can_open(self, index: int) -> bool:
        """Return whether a closed channel would begin with credit: not all of it holds batches of its last time."""
        share = self.idle_floating if self.is_lone else 0
        return self.accounts[index].held_exclusive < self.exclusive_count or share > 0

    def open_channel(self, index: int) -> int:
        """Begin to receive; return the initial credit, which need not be announced."""
        account = self.accounts[index]
        assert not account.is_open
        # Of several channels none may begin with floating segments: the credit cannot be taken back from a producer
        # that turns out to be idle, and a giant row elsewhere may need every one of them.
        share = self.idle_floating if self.is_lone else 0
        account.is_open = True
        # A channel that is opened again may have batches of its last time that nobody has taken yet.
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
        """The sender lacks credit for its next batch: aim at room for `backlog` segments, past any limit in flight."""
        self.accounts[index].is_stalled = True
        self._require(self.accounts[index], index, backlog)

    def _require(self, account: ReceiverAccount, index: int, backlog: int) -> None:
        """Aim at having room for `backlog` segments beside the exclusive ones."""
        if not account.is_open:
            return
        account.backlog = backlog
        # Nobody else wants what a lone channel has: its sender need not ask for it again and again.
        account.required = self.credit_max if self.is_lone else backlog + self.exclusive_count
        if account.unannounced:
            self._to_announce[index] = None
        if account.is_waiting or account.available >= account.required:
            return
        account.is_waiting = True
        self._waiting.append(index)
        self._serve_waiting()

    def batch_taken(self, index: int, charge: Charge) -> None:
        """Free what a batch occupied: the task has taken it."""
        account = self.accounts[index]
        account.held_exclusive -= charge.exclusive_count
        account.held_floating -= charge.floating_count
        self.idle_floating += charge.floating_count
        if account.is_open:
            for _ in range(charge.exclusive_count):
                self._free_exclusive(index, account)
        self._serve_waiting()

    def close_channel(self, index: int) -> None:
        """End the channel: its floating segments serve others, its exclusive ones wait for the gate to close."""
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
        """Return `(channel index, credit)` of what became available, and count it as announced.

        Nothing for a channel that has plenty: it is looked at again when its sender is heard of.
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
            # The exclusive segment takes the place of a floating one in what the sender knows of.
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
