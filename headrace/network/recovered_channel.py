"""RecoveredInputChannel: what a checkpoint caught on its way on one channel, read before anything new.

    restore -> READING --the last batch, EndOfInputChannelState--> its successor stands in its place

A successor is requested when every channel of its gate is drained: its sender may be another one now, so that what it
sends belongs behind the restored rows of all channels. Source: Flink RecoveredInputChannel.
"""

from collections import deque
from collections.abc import Sequence

from headrace.network.channels import (
    ChannelElement,
    EndOfInputChannelState,
    InputChannel,
    ReceivedBatch,
)
from headrace.network.input_capture import CapturedBatch, ChannelCapture


class RecoveredInputChannel:
    """See InputChannel. Batches, and EndOfInputChannelState once it was requested. The task's thread, but for readings.

    `successor`: the local, remote or unknown channel that reads what is sent from now on.
    """

    has_priority_event = False

    def __init__(self, successor: InputChannel) -> None:
        self.successor = successor
        self._queue: deque[ReceivedBatch | EndOfInputChannelState] = deque()
        self._capture = ChannelCapture()

    @property
    def is_local(self) -> bool:
        """See InputChannel. Counted as what it came on."""
        return self.successor.is_local

    @property
    def queued_count(self) -> int:
        """See InputChannel."""
        return len(self._queue)

    @property
    def queued_bytes(self) -> int:
        """See InputChannel. What waits here is in nobody's network memory."""
        return 0

    def restore(self, batches: Sequence[ReceivedBatch]) -> None:
        """Have `batches` read behind those given before; before `request`."""
        self._queue.extend(batches)

    def request(self) -> None:
        """See InputChannel. Nothing more was caught."""
        self._queue.append(EndOfInputChannelState())

    def poll(self) -> ChannelElement | None:
        """See InputChannel."""
        return self._queue.popleft() if self._queue else None

    def resume(self) -> None:
        """See InputChannel."""
        raise AssertionError("a recovered channel has delivered nothing that blocks")

    def prioritise(self, sequence: int) -> None:
        """See InputChannel."""
        raise AssertionError("a recovered channel has announced nothing")

    def start_capture(self, checkpoint_id: int) -> None:
        """See InputChannel. What was restored stands before every barrier of the running job."""
        self._capture.start(checkpoint_id)
        for each in self._queue:
            if isinstance(each, ReceivedBatch):
                self._capture.add(CapturedBatch(each.arrow, each.markers))

    def stop_capture(self, checkpoint_id: int) -> list[CapturedBatch]:
        """See InputChannel."""
        return self._capture.stop(checkpoint_id)

    def acknowledge_all_data(self) -> None:
        """See InputChannel."""
        raise AssertionError("a recovered channel has delivered no end of data")

    def request_in_flight_rows(self, in_flight_rows: int) -> None:
        """See InputChannel."""
        self.successor.request_in_flight_rows(in_flight_rows)

    def send_task_event(self, event: bytes) -> None:
        """See InputChannel."""
        self.successor.send_task_event(event)

    def close(self) -> None:
        """See InputChannel."""
        self.successor.close()
