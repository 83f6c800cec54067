"""BufferManager: owns segments and credits of one gate's remote channels, on the transport's thread.

The task's thread only reports the batches that it took. The transport's thread owns the accounts, so that they need no
lock. It is woken for several batches, or when the task has nothing more to take, and then only if a producer may
run out of credit: otherwise taken batches are counted at the producer's next message. Source: Flink BufferManager.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from headrace.network.flow.credit import Charge, GateCredits
from headrace.network.memory.network_buffer_pool import Reservation
from headrace.network.sessions.transport import Transport


class BufferManager:
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
        self._grants: Mapping[int, Callable[[int], None]] = {}
        self._taken: deque[tuple[int, Charge]] = (
            deque()
        )  # appended to by the task, emptied by the transport
        self._batch_size = max(1, self.credits.credit_max // 4)
        self._is_wake_pending = False

    @property
    def segment_count(self) -> int:
        """Number of segments that the gate owns."""
        return self._reservation.count

    @property
    def used_count(self) -> int:
        """Number of segments with batches that the task has not taken yet. Any thread; a snapshot."""
        exclusive, floating = self._held()
        return exclusive + floating

    @property
    def granted_count(self) -> int:
        """Number of segments that producers may fill, as known on this side. Any thread; a snapshot."""
        return sum(account.granted for account in self.credits.accounts)

    @property
    def exclusive_usage(self) -> float:
        """Share of the exclusive segments that hold batches. Any thread; a snapshot."""
        return self._held()[0] / (len(self.credits.accounts) * self.credits.exclusive_count)

    @property
    def floating_usage(self) -> float:
        """Share of the floating segments that hold batches. Any thread; a snapshot."""
        return self._held()[1] / self.credits.floating_count if self.credits.floating_count else 0.0

    def serve(self, grants: Mapping[int, Callable[[int], None]]) -> None:
        """Set the functions that grant credit per channel, called on the transport's thread.

        Call before opening channels.
        """
        self._grants = grants

    def batch_taken(self, index: int, charge: Charge) -> None:
        """Record that the task took a batch. Task thread."""
        self._taken.append((index, charge))
        if len(self._taken) >= self._batch_size:
            self.flush()

    def flush(self) -> None:
        """Have credit announced for the taken batches if a producer may need it. Task thread.

        If the accounts change during this check, the thread that changes them finds the taken batches itself: see
        `heard_of`.
        """
        if not self._taken or self._is_wake_pending:
            return
        taken = list(self._taken)
        # Shared segments are returned at once; each channel is checked once, however many of its batches were taken.
        is_missed = not self.credits.is_lone and any(charge.floating_count for _, charge in taken)
        if is_missed or any(map(self.credits.needs_settling, {index for index, _ in taken})):
            self._is_wake_pending = True
            self.transport.post(self._settle_and_announce)

    def heard_of(self, index: int) -> None:
        """Handle that a producer's message was charged to a channel: announce credit if it is needed.

        Transport's thread.
        """
        if self._taken and self.credits.needs_settling(index):
            self.settle()
        self.announce()

    def settle(self) -> None:
        """Count all batches that the task took. Transport's thread."""
        while self._taken:
            index, charge = self._taken.popleft()
            self.credits.batch_taken(index, charge)

    def limit_in_flight(self, batch_count: int) -> None:
        """Let each channel have at most `batch_count` batches in flight. Task thread."""

        def limit() -> None:
            self.credits.limit_in_flight(batch_count)
            self.announce()

        self.transport.post(limit)

    def announce(self) -> None:
        """Send the credit that became available. Transport's thread."""
        for index, credit_count in self.credits.take_announcements():
            self._grants[index](credit_count)

    def close(self) -> None:
        """Return the segments after all calls posted before."""
        self.transport.post(self._reservation.close)

    def _settle_and_announce(self) -> None:
        self._is_wake_pending = False
        self.settle()
        self.announce()

    def _held(self) -> tuple[int, int]:
        """Exclusive and floating segments of batches that were not taken. Any thread; a moment's reading."""
        accounts = self.credits.accounts
        taken = [charge for _, charge in list(self._taken)]
        exclusive = sum(account.held_exclusive for account in accounts)
        floating = sum(account.held_floating for account in accounts)
        return (
            max(0, exclusive - sum(charge.exclusive_count for charge in taken)),
            max(0, floating - sum(charge.floating_count for charge in taken)),
        )
