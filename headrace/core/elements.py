"""Stream elements other than rows: markers that stand between rows, and events that are frames of their own."""

import enum
from typing import Final

import msgspec

from headrace.core.barriers import CancelCheckpointMarker, CheckpointBarrier
from headrace.core.ids import OperatorId

MIN_TIMESTAMP: Final = -(2**63)
"""Value for a missing timestamp, and the watermark before the first one."""

MAX_WATERMARK: Final = 2**63 - 1
"""The end of event time: every event-time timer fires."""


class Watermark(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """Promise that no more records with a timestamp <= `timestamp_ms` will arrive. Source: Flink Watermark."""

    timestamp_ms: int


class WatermarkStatus(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """Participation of a channel in the progress of event time. Source: Flink WatermarkStatus."""

    is_idle: bool


class LatencyMarker(msgspec.Struct, frozen=True, array_like=True, tag="l"):
    """A marker that measures latency; it left a source at `marked_time_ms`, by that host's clock.

    It follows the rows, to one consumer at each fork. Operators forward it at once, even if they hold rows back as
    windows do, so that it measures the time that rows spend between operators.
    Source: Flink LatencyMarker.
    """

    marked_time_ms: int
    source_id: OperatorId
    subtask_index: int


TimeMarker = Watermark | WatermarkStatus
"""Elements that advance event time: every consumer of a stream gets them."""

StreamMarker = TimeMarker | LatencyMarker
"""Elements that stand between two rows of a batch."""


class PlacedMarker(msgspec.Struct, frozen=True, array_like=True):
    """A marker that stands before row `row_offset` of its batch (`row_offset == num_rows`: after the last row)."""

    row_offset: int
    marker: StreamMarker


class StopMode(enum.Enum):
    """Ways in which a stream ends. Source: Flink StopMode."""

    DRAIN = 0
    NO_DRAIN = 1


class EndOfData(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """Announces that the producer's user code will emit nothing more."""

    mode: StopMode = StopMode.DRAIN


class EndOfPartition(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """Announces that the partition is complete, so that the channel can be released."""


class EndOfOutputChannelState(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    """Ends the replay of elements that a checkpoint stored from the producer's output: the next elements are new.

    The channel stays blocked until all channels of the task that will deliver this event have delivered it.
    Source: Flink EndOfOutputChannelStateEvent.
    """


class CancelTaskException(Exception):
    """Raised in a task thread when its buffers or gates were closed: the task was cancelled and did not fail."""


StreamEvent = (
    EndOfData
    | EndOfPartition
    | EndOfOutputChannelState
    | CheckpointBarrier
    | CancelCheckpointMarker
)
"""Elements that are frames of their own; they cost no credit."""
