"""What a fault rule says: frozen values; `rule_text` reads and prints them.

A rule selects frames of one connection and does one thing to them. The frames of the opening (Hello, Proof) pass
untouched: they are proofs over their own bytes. Counters (`every`, `nth`, `count`) run per connection and direction.
"""

import enum
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from headrace.network.frame_cutter import CutFrame


class Direction(enum.Enum):
    """Which way a frame goes. A consumer dials its producer: data then travels backward, credit forward."""

    FORWARD = "forward"
    BACKWARD = "backward"

    @property
    def other(self) -> "Direction":
        """The opposite one."""
        return Direction.BACKWARD if self is Direction.FORWARD else Direction.FORWARD


class Unit(enum.Enum):
    """How a number is written in a rule."""

    DURATION = "a duration such as 100ms"
    SIZE = "a size such as 64KiB"
    RATE = "a size per second such as 1MiB/s"
    COUNT = "a number"


def _key(name: str, unit: Unit, least: int = 0, **default: Any) -> Any:
    """Describe a key; `least`: of counts, the smallest that does anything."""
    return field(metadata={"key": name, "unit": unit, "least": least}, **default)


_MS: Final = 1_000_000


@dataclass(frozen=True)
class Drop:
    """The frame never arrives."""


@dataclass(frozen=True)
class Duplicate:
    """The frame arrives so many times more, one behind the other."""

    copy_count: int = _key("copies", Unit.COUNT, 1, default=1)


@dataclass(frozen=True)
class Delay:
    """The frame arrives later, by a fixed time and up to `jitter` more; what is behind it waits too."""

    by_ns: int = _key("by", Unit.DURATION)
    jitter_ns: int = _key("jitter", Unit.DURATION, default=0)


@dataclass(frozen=True)
class Reorder:
    """The frame lets so many others pass, or comes when nothing has passed it `within` a time."""

    by_count: int = _key("by", Unit.COUNT, 1, default=1)
    within_ns: int = _key("within", Unit.DURATION, default=100 * _MS)


@dataclass(frozen=True)
class Corrupt:
    """One bit of the frame is turned over, in the byte `at`, or where the seed says."""

    at: int | None = _key("at", Unit.COUNT, default=None)


@dataclass(frozen=True)
class Cut:
    """The connection ends in both directions once `at` bytes of the frame have passed."""

    at: int = _key("at", Unit.COUNT, default=0)


@dataclass(frozen=True)
class Stall:
    """From this frame on nothing passes in its direction, for some time or for ever; the connection stays open."""

    duration_ns: int | None = _key("for", Unit.DURATION, default=None)


@dataclass(frozen=True)
class Throttle:
    """Frames pass at this speed; the proxy then reads no faster either."""

    bytes_per_second: int = _key("rate", Unit.RATE)


@dataclass(frozen=True)
class Fragment:
    """The frame is written in pieces of this size, each on its own."""

    size_bytes: int = _key("size", Unit.SIZE, default=1)


@dataclass(frozen=True)
class Coalesce:
    """Frames are collected until they are so many bytes, or the oldest has waited so long, and written at once."""

    size_bytes: int = _key("size", Unit.SIZE, default=1 << 20)
    within_ns: int = _key("within", Unit.DURATION, default=10 * _MS)


FaultAction = (
    Drop | Duplicate | Delay | Reorder | Corrupt | Cut | Stall | Throttle | Fragment | Coalesce
)

ACTIONS: Final[dict[str, type[Any]]] = {
    action.__name__.lower(): action for action in get_args(FaultAction)
}
"""Every action by the word that begins its rules."""


@dataclass(frozen=True)
class FrameSelector:
    """Which frames: those for which everything that is said holds. Says nothing: all but the opening."""

    frame_name: str | None = None
    direction: Direction | None = None
    channel: int | None = None
    sequence: tuple[int, int] | None = None  # both inclusive
    offset: int | None = None  # the frame with this byte of its direction's stream
    every: int | None = None  # of those so far, the n-th, 2n-th, …
    nth: int | None = None  # of those so far, this one, from 1
    probability: float = 1.0
    count: int | None = None  # at most so many

    def fits(self, direction: Direction, cut: CutFrame) -> bool:
        """Whether the frame itself is meant, before anything is counted or drawn."""
        if cut.is_opening or self.direction not in (None, direction):
            return False
        frame = cut.frame
        if self.frame_name not in (None, type(frame).__name__):
            return False
        if self.channel is not None and getattr(frame, "channel", None) != self.channel:
            return False
        if self.sequence is not None:
            number = getattr(frame, "sequence", None)
            if number is None or not self.sequence[0] <= number <= self.sequence[1]:
                return False
        return self.offset is None or cut.offset <= self.offset < cut.offset + len(cut.raw)


@dataclass(frozen=True)
class FaultRule:
    """What is done to which frames. `str` gives the text that `parse_rule` reads."""

    action: FaultAction
    selector: FrameSelector = FrameSelector()

    @property
    def word(self) -> str:
        """The action as rules and counts name it."""
        return type(self.action).__name__.lower()

    def __str__(self) -> str:
        # Imported late: reading needs the classes above, and printing belongs with reading.
        from headrace.testing.fault_proxy.rule_text import print_rule

        return print_rule(self)
