"""ReadOn: whether and when a channel goes on reading a stored result after its connection ended. Pure.

    reading --lost--> waiting --delay--> connecting --connected--> reading, from the element that is next
                         ^                    |
                         +-----not reached----+          no element for `retry` in all: the first error is final

Only for results that outlive whoever made them: where the connection with a task manager ends, its results are gone
with it, and to wait for them would only delay the restart. Source: Flink Remote Shuffle's reads by offset.
"""

from headrace.network.errors import CorruptFrameError, HandshakeError, NetworkError, ProtocolError
from headrace.network.retry import PartitionRequestRetry


class ReadOn:
    """Of one channel; on the transport's thread."""

    def __init__(self, retry: PartitionRequestRetry, *, is_external: bool) -> None:
        self._retry = retry
        self._is_external = is_external
        self._waits = retry
        self._first_error: NetworkError | None = None
        self._lost_at_sequence = -1

    @property
    def has_begun(self) -> bool:
        """Whether a connection was lost: who never had one is told at once that there is none."""
        return self._first_error is not None

    def lost(self, error: NetworkError, next_sequence: int) -> float | NetworkError:
        """The connection ended, or cannot be made: return the wait in ms before the next try, or the final error."""
        if not self._is_external or not _may_pass(error):
            return error
        if self._first_error is None or next_sequence > self._lost_at_sequence:
            # It got further than the last time: whatever cuts connections, this reader comes to its end.
            self._waits = self._retry.unparked()
            self._first_error = error
        self._lost_at_sequence = next_sequence
        delay_ms = self._waits.next_delay_ms()
        return self._first_error if delay_ms is None else delay_ms


def _may_pass(error: NetworkError) -> bool:
    """Whether another connection may do better: not where the peer breaks the protocol or does not know us."""
    if isinstance(error, CorruptFrameError):
        return True
    return not isinstance(error, ProtocolError | HandshakeError)
