"""RecoveredInputChannel: what was on its way to a channel when a checkpoint was taken, then the channel itself.

Flink reads all recovered channels of a gate to their ends before it requests a partition, and needs buffers for both
phases; here the restored elements merely stand in front of those that come. Source: Flink RecoveredInputChannel.
"""

from collections import deque
from collections.abc import Sequence

from headrace.core.elements import StreamEvent
from headrace.network.channels import InputChannel, ReceivedBatch


class RecoveredInputChannel:
    """See InputChannel. Gives out `restored`, in order, and from then on what `channel` has.

    `channel` is replaced by its gate, where it only held the place.
    """

    def __init__(self, channel: InputChannel, restored: Sequence[ReceivedBatch]) -> None:
        self._restored = deque(restored)
        self.channel = channel

    @property
    def is_local(self) -> bool:
        """See InputChannel. As the channel is now: one that was unknown may have been placed."""
        return self.channel.is_local

    @property
    def is_consumed(self) -> bool:
        """Whether everything that was restored has been read."""
        return not self._restored

    @property
    def queued_count(self) -> int:
        """See InputChannel."""
        return len(self._restored) + self.channel.queued_count

    @property
    def queued_bytes(self) -> int:
        """See InputChannel."""
        restored = sum(batch.size_bytes for batch in self._restored)
        return restored + self.channel.queued_bytes

    @property
    def has_priority_event(self) -> bool:
        """See InputChannel. What is restored lies before every event of the running job."""
        return not self._restored and self.channel.has_priority_event

    def request(self) -> None:
        """See InputChannel."""
        self.channel.request()

    def poll(self) -> ReceivedBatch | StreamEvent | None:
        """See InputChannel."""
        return self._restored.popleft() if self._restored else self.channel.poll()

    def resume(self) -> None:
        """See InputChannel."""
        self.channel.resume()

    def acknowledge_all_data(self) -> None:
        """See InputChannel."""
        self.channel.acknowledge_all_data()

    def request_in_flight_bytes(self, in_flight_bytes: int) -> None:
        """See InputChannel."""
        self.channel.request_in_flight_bytes(in_flight_bytes)

    def send_task_event(self, event: bytes) -> None:
        """See InputChannel."""
        self.channel.send_task_event(event)

    def close(self) -> None:
        """See InputChannel."""
        self._restored.clear()
        self.channel.close()
