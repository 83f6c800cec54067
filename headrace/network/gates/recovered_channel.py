"""RecoveredInputChannel: rows that a checkpoint caught on their way on one channel, read before anything new.

    restore -> READING --the last batch, EndOfInputChannelState--> its successor stands in its place

A successor is requested when every channel of its gate is drained: its sender may be another one now, so that what it
sends belongs behind the restored rows of all channels. Source: Flink RecoveredInputChannel.
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
    """Input channel of restored in-flight batches; once they are read and it is requested, EndOfInputChannelState.

    The task's thread, except for metrics, which any thread reads.

    `successor`: the local or remote channel that reads what is sent from now on.
    """

    has_priority_event = False

    def __init__(self, successor: InputChannel) -> None:
        self.successor = successor
        self._queue: deque[SealedBatch | EndOfInputChannelState] = deque()
        self._capture = InFlightInput()

    @property
    def is_local(self) -> bool:
        """Return whether the restored rows count as local: those of a local channel do."""
        return self.successor.is_local

    @property
    def queued_count(self) -> int:
        return len(self._queue)

    @property
    def queued_bytes(self) -> int:
        """Return 0: restored rows are not in network memory."""
        return 0

    def restore(self, batches: Sequence[SealedBatch]) -> None:
        """Have `batches` read behind those given before; before `request`."""
        self._queue.extend(batches)

    def request(self) -> None:
        """End the restored rows: there are no more."""
        self._queue.append(EndOfInputChannelState())

    def poll(self) -> ChannelElement | None:
        return self._queue.popleft() if self._queue else None

    def resume(self) -> None:
        raise AssertionError("a recovered channel has delivered nothing that blocks")

    def prioritise(self, sequence: int) -> None:
        raise AssertionError("a recovered channel has announced nothing")

    def start_capture(self, checkpoint_id: int) -> None:
        """Capture all that waits: restored rows stand before every barrier of the running job."""
        self._capture.start(checkpoint_id)
        for each in self._queue:
            if isinstance(each, SealedBatch):
                self._capture.add(CapturedBatch(each.arrow, each.markers))

    def stop_capture(self, checkpoint_id: int) -> list[CapturedBatch]:
        return self._capture.stop(checkpoint_id)

    def acknowledge_all_data(self) -> None:
        raise AssertionError("a recovered channel has delivered no end of data")

    def request_in_flight_rows(self, in_flight_rows: int) -> None:
        self.successor.request_in_flight_rows(in_flight_rows)

    def close(self) -> None:
        self.successor.close()
