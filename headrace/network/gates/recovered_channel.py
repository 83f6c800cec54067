"""RecoveredInputChannel: delivers a channel's in-flight rows from a checkpoint before any new ones.

    restore -> READING --the last batch, EndOfInputChannelState--> its successor replaces it

A successor is requested when every channel of its gate is drained: after a rescaling it may have another sender, so
that what that one sends belongs behind the restored rows of all channels. Source: Flink RecoveredInputChannel.
"""

from collections import deque
from collections.abc import Sequence

from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.gates.gate import (
    ChannelElement,
    EndOfInputChannelState,
    InputChannel,
)
from headrace.network.gates.in_flight_input import CapturedBatch, InFlightInput


class RecoveredInputChannel:
    """Delivers the restored in-flight batches of a channel and then, once requested, EndOfInputChannelState.

    Task's thread, except for metrics, which any thread reads. `successor` is the local or remote channel that reads new
    elements.
    """

    has_priority_event = False

    def __init__(self, successor: InputChannel) -> None:
        self.successor = successor
        self._queue: deque[SealedBatch | EndOfInputChannelState] = deque()
        self._capture = InFlightInput()

    @property
    def is_local(self) -> bool:
        """Return whether the successor is local; its restored rows count as local then."""
        return self.successor.is_local

    @property
    def queued_count(self) -> int:
        return len(self._queue)

    @property
    def queued_bytes(self) -> int:
        """Return 0: restored rows are not in network memory."""
        return 0

    def restore(self, batches: Sequence[SealedBatch]) -> None:
        """Append `batches` to the restored rows. Call before `request`."""
        self._queue.extend(batches)

    def request(self) -> None:
        """End the restored rows."""
        self._queue.append(EndOfInputChannelState())

    def poll(self) -> ChannelElement | None:
        return self._queue.popleft() if self._queue else None

    def resume(self) -> None:
        raise AssertionError("a recovered channel delivers no event that blocks its producer")

    def prioritise(self, sequence: int) -> None:
        raise AssertionError("a recovered channel announces no barriers")

    def start_capture(self, checkpoint_id: int) -> None:
        """Capture all queued batches: restored rows precede every barrier of the running job."""
        self._capture.start(checkpoint_id)
        for each in self._queue:
            if isinstance(each, SealedBatch):
                self._capture.add(CapturedBatch(each.arrow, each.markers))

    def stop_capture(self, checkpoint_id: int) -> list[CapturedBatch]:
        return self._capture.stop(checkpoint_id)

    def acknowledge_all_data(self) -> None:
        raise AssertionError("a recovered channel delivers no EndOfData")

    def request_in_flight_rows(self, in_flight_rows: int) -> None:
        self.successor.request_in_flight_rows(in_flight_rows)

    def close(self) -> None:
        self.successor.close()
