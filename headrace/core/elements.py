"""What travels on a stream besides rows: watermarks and idleness in band, and events as frames of their own."""

import enum
from typing import Final

import msgspec

from headrace.core.barriers import CancelCheckpointMarker, CheckpointBarrier
from headrace.core.ids import OperatorId

MIN_TIMESTAMP: Final = -(2**63)
"""No timestamp; also the watermark before the first one."""

MAX_WATERMARK: Final = 2**63 - 1
"""The end of event time: every event-time timer fires."""


class Watermark(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """No more records with a timestamp <= `timestamp_ms` are to be expected. Source: Flink Watermark."""

    timestamp_ms: int


class WatermarkStatus(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """Whether this channel takes part in the progress of event time. Source: Flink WatermarkStatus."""

    is_idle: bool


class LatencyMarker(msgspec.Struct, frozen=True, array_like=True, tag="l"):
    """Left a source at `marked_time_ms`, by that host's clock, and goes with the rows to one consumer at each fork.

    Operators hold no markers back, as they do with rows of a window: it tells how long rows wait between them.
    Source: Flink LatencyMarker.
    """

    marked_time_ms: int
    source_id: OperatorId
    subtask_index: int


TimeMarker = Watermark | WatermarkStatus
"""Elements that tell how far event time is: every consumer of a stream gets them."""

StreamMarker = TimeMarker | LatencyMarker
"""Elements that stand between two rows of a batch."""


class PlacedMarker(msgspec.Struct, frozen=True, array_like=True):
    """A marker that stands before row `row_offset` of its batch (`row_offset == num_rows`: after the last row)."""

    row_offset: int
    marker: StreamMarker


class StopMode(enum.Enum):
    """How a stream ended. Source: Flink StopMode."""

    DRAIN = 0
    NO_DRAIN = 1


class EndOfData(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """The producer's user code will emit nothing more."""

    mode: StopMode = StopMode.DRAIN


class EndOfPartition(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """The partition is complete: the channel can be released."""


class EndOfOutputChannelState(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    """All that a checkpoint caught on its way out of the producer was sent again: what follows is new.

    Blocks upstream, until every channel of its task that is to deliver it has done so.
    Source: Flink EndOfOutputChannelStateEvent.
    """


class CancelTaskException(Exception):
    """Raised in a task thread whose buffers or gates were closed under it: cancellation, not failure."""


StreamEvent = (
    EndOfData
    | EndOfPartition
    | EndOfOutputChannelState
    | CheckpointBarrier
    | CancelCheckpointMarker
)
"""Elements that are frames of their own; they cost no credit."""
