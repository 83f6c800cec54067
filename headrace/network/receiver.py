"""GateReceiver: the receiving side of one gate's remote channels, their credits and the thread they live on.

The task's thread only says which batches it took. The transport's thread owns the accounts, so that they need no
lock; it is woken once for several batches, or as soon as the task finds nothing more to take.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, Protocol

from headrace.network.buffer_pool import Reservation
from headrace.network.credit import Charge, GateCredits
from headrace.network.transport import Transport


class CreditedChannel(Protocol):
    """A channel that can tell its producer of credit."""

    def grant(self, credit_count: int) -> None:
        """Send credit; the transport's thread."""
        ...


class GateReceiver:
    """Credits of the remote channels of one gate, numbered from 0 within it."""

    def __init__(
        self,
        transport: Transport,
        channel_count: int,
        exclusive_count: int,
        floating_count: int,
        reservation: Reservation,
    ) -> None:
        self.transport: Final = transport
        self.segment_size: Final = reservation.segment_size
        self.region: Final = reservation.region
        self.credits: Final = GateCredits(channel_count, exclusive_count, floating_count)
        self._reservation = reservation
        self._channels: Mapping[int, CreditedChannel] = {}
        self._taken: deque[tuple[int, Charge]] = (
            deque()
        )  # appended to by the task, emptied by the transport
        self._batch_size = max(1, self.credits.credit_max // 4)
        self._is_wake_pending = False

    @property
    def segment_count(self) -> int:
        """Segments that the gate owns."""
        return self._reservation.count

    @property
    def used_count(self) -> int:
        """Segments that hold batches the task has not taken yet. Any thread; a moment's reading."""
        return sum(
            account.held_exclusive + account.held_floating for account in self.credits.accounts
        )

    @property
    def granted_count(self) -> int:
        """Segments that producers may fill, as far as this side knows. Any thread; a moment's reading."""
        return sum(account.granted for account in self.credits.accounts)

    @property
    def exclusive_usage(self) -> float:
        """Share of the channels' own segments that hold batches. Any thread; a moment's reading."""
        held = sum(account.held_exclusive for account in self.credits.accounts)
        return held / (len(self.credits.accounts) * self.credits.exclusive_count)

    @property
    def floating_usage(self) -> float:
        """Share of the shared segments that hold batches. Any thread; a moment's reading."""
        held = sum(account.held_floating for account in self.credits.accounts)
        return held / self.credits.floating_count if self.credits.floating_count else 0.0

    def serve(self, channels: Mapping[int, CreditedChannel]) -> None:
        """Name the channels before any of them is opened."""
        self._channels = channels

    def batch_taken(self, index: int, charge: Charge) -> None:
        """The task took a batch. Task thread."""
        self._taken.append((index, charge))
        if len(self._taken) >= self._batch_size:
            self.flush()

    def flush(self) -> None:
        """Have credits announced for what was taken. Task thread."""
        if self._taken and not self._is_wake_pending:
            self._is_wake_pending = True
            self.transport.post(self._settle)

    def limit_in_flight(self, batch_count: int) -> None:
        """Let each channel have at most so many batches in flight. Task thread."""

        def limit() -> None:
            self.credits.limit_in_flight(batch_count)
            self.announce()

        self.transport.post(limit)

    def announce(self) -> None:
        """Send the credit that became available. The transport's thread."""
        for index, credit_count in self.credits.take_announcements():
            self._channels[index].grant(credit_count)

    def close(self) -> None:
        """Give the segments back, behind everything posted before."""
        self.transport.post(self._reservation.close)

    def _settle(self) -> None:
        self._is_wake_pending = False
        while self._taken:
            index, charge = self._taken.popleft()
            self.credits.batch_taken(index, charge)
        self.announce()
