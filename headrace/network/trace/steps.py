"""Steps of a trace, each with the frames it caused and the accounts after it."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headrace.network.batches.sealed_batch import decode_event
from headrace.network.wire.frames import (
    AddCredit,
    Backlog,
    Data,
    Event,
    PartitionRequest,
)
from headrace.network.wire.framing import Frame

PRODUCER: Final = "A"
CONSUMER: Final = "B"


@dataclass(frozen=True)
class SentFrame:
    """A sent frame; `fields` are its header's fields and the length of its body."""

    source: str
    target: str
    name: str
    text: str
    fields: dict[str, Any]

    @classmethod
    def of(cls, source: str, target: str, frame: Frame) -> "SentFrame":
        """Describe a frame."""
        return cls(source, target, type(frame).__name__, frame_text(frame), frame_fields(frame))

    def __str__(self) -> str:
        return f"{self.source} → {self.target}  {self.text}"


@dataclass(frozen=True)
class Reading:
    """Credit accounts of the traced channel at one moment, in segments.

    The columns of the example in the network reference.
    """

    sender_credit: int
    queue: int
    data_in_flight: int
    credit_in_flight: int
    idle_exclusive: int
    idle_floating: int
    required: int
    unannounced: int
    pool: int
    held_exclusive: int
    held_floating: int

    @property
    def is_balanced(self) -> bool:
        """Return whether credit is conserved: credit plus data in flight equals the receiver's idle segments."""
        known = self.sender_credit + self.data_in_flight + self.credit_in_flight + self.unannounced
        return known == self.idle_exclusive + self.idle_floating


@dataclass(frozen=True)
class TraceStep:
    """Event of a trace: `text` describes it, frames were sent because of it, and `reading` has the accounts after it.

    `reading` is None while the channel is not open at both ends. `is_lawful`: credit is conserved, and no segment is
    gained or lost.
    """

    number: int
    text: str
    sent: tuple[SentFrame, ...]
    reading: Reading | None
    is_lawful: bool


def frame_text(frame: Frame) -> str:
    """Return a short description of a frame, with the fields that concern flow control."""
    match frame:
        case PartitionRequest():
            return f"PartitionRequest of channel {frame.channel}, credit {frame.initial_credit}"
        case Data():
            cost = "" if frame.credit_count == 1 else f", costs {frame.credit_count}"
            return (
                f"Data #{frame.sequence} of channel {frame.channel}{cost}, backlog {frame.backlog}"
            )
        case Event():
            event = decode_event(frame.kind, frame.value, frame.body, "the trace")
            return f"Event #{frame.sequence} of channel {frame.channel}: {type(event).__name__}"
        case AddCredit():
            return f"AddCredit {frame.credit_count} for channel {frame.channel}"
        case Backlog():
            return f"Backlog {frame.backlog} of channel {frame.channel}"
        case _:
            channel = getattr(frame, "channel", None)
            name = type(frame).__name__
            return name if channel is None else f"{name} of channel {channel}"


def frame_fields(frame: Frame) -> dict[str, Any]:
    """Return the fields of a frame as plain values, the length of a body, and bytes as hexadecimal digits."""
    fields: dict[str, Any] = {}
    for name in frame.__struct_fields__:
        value = getattr(frame, name)
        if name == "body":
            fields["body_bytes"] = len(value)
        elif isinstance(value, bytes):
            fields[name] = value.hex()
        elif isinstance(value, int | str):
            fields[name] = value
        else:
            fields[name] = str(value)
    return fields


def to_json(step: TraceStep) -> str:
    """Return a step as one line of JSON."""
    return msgspec.json.encode(step).decode()
