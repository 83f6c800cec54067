"""RecoveredInputChannel: what a checkpoint caught on its way on one channel, read before anything new.

    restore -> READING --the last batch, EndOfInputChannelState--> its successor stands in its place

A successor is requested when every channel of its gate is drained: its sender may be another one now, so that what it
sends belongs behind the restored rows of all channels. Source: Flink RecoveredInputChannel.

UpstreamRecovery: which channels of a task have delivered all that their senders had to send again. Pure.

    sender     restored rows, EndOfOutputChannelState │ blocked │ what is new
    gates      … until every channel of all gates has delivered the event: then all of them are resumed

Rows that one sender had sent before a checkpoint may be followed by rows of another one, which took over after a
rescaling: so nothing new is read of any channel before all that was restored.

Flink has a tracker for each gate. Here there is one for all gates of a task that exchange records without storing them:
else the barrier of the next checkpoint may come on one gate while another one has restored rows still to read. Those
would be stored beside what is new on their gate by the time its barriers come, and change places in the restart after
that. Nobody waits in a circle: senders hand over what they restore before they read, whatever becomes of it.
Source: Flink UpstreamRecoveryTracker.
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
        """See InputChannel. Counted as what it came on."""
        return self.successor.is_local

    @property
    def queued_count(self) -> int:
        return len(self._queue)

    @property
    def queued_bytes(self) -> int:
        """See InputChannel. What waits here is in nobody's network memory."""
        return 0

    def restore(self, batches: Sequence[SealedBatch]) -> None:
        """Have `batches` read behind those given before; before `request`."""
        self._queue.extend(batches)

    def request(self) -> None:
        """See InputChannel. Nothing more was caught."""
        self._queue.append(EndOfInputChannelState())

    def poll(self) -> ChannelElement | None:
        return self._queue.popleft() if self._queue else None

    def resume(self) -> None:
        raise AssertionError("a recovered channel has delivered nothing that blocks")

    def prioritise(self, sequence: int) -> None:
        raise AssertionError("a recovered channel has announced nothing")

    def start_capture(self, checkpoint_id: int) -> None:
        """See InputChannel. What was restored stands before every barrier of the running job."""
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
