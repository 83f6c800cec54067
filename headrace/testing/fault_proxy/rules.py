"""Fault rules: frozen values, and the short texts that they are parsed from and printed as.

A rule selects frames of one connection and applies one action to them. The frames of the handshake (Hello, Proof) are
never changed, because they are proofs over their own bytes. Counters (`every`, `nth`, `count`) run per connection and
direction.

As texts: `drop Data channel=1 sequence=5`, `delay AddCredit by=100ms`, `throttle 1MiB/s`.

    rule      = action [amount] [frame] {key=value}
    action    = a word of `rules.ACTIONS`
    amount    = the value of the action's first key, without the key: `delay 100ms`, `cut 7`
    frame     = the name of a frame class of the protocol
    key       = one of the action, or of the selector
"""

import dataclasses
import enum
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, get_args

from headrace.network.wire import frames
from headrace.network.wire.frame_splitter import SplitFrame
from headrace.network.wire.framing import Frame

_MS: Final = 1_000_000
FRAME_NAMES: Final = tuple(
    name
    for name, value in vars(frames).items()
    if isinstance(value, type) and issubclass(value, Frame)
    if value not in (Frame, frames.Hello, frames.Proof)
)
_NUMBER: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
_NS: Final = {"ns": 1, "us": 1000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000}
_BYTES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class Direction(enum.Enum):
    """Direction of a frame. A consumer dials its producer: data then travels backward, credit forward."""

    FORWARD = "forward"
    BACKWARD = "backward"

    @property
    def other(self) -> "Direction":
        """Return the opposite direction."""
        return Direction.BACKWARD if self is Direction.FORWARD else Direction.FORWARD


class Unit(enum.Enum):
    """Units of a number in a rule."""

    DURATION = "a duration such as 100ms"
    SIZE = "a size such as 64KiB"
    RATE = "a size per second such as 1MiB/s"
    COUNT = "a number"


def _key(name: str, unit: Unit, least: int = 0, **default: Any) -> Any:
    """Describe a key; `least`: the smallest effective count."""
    return field(metadata={"key": name, "unit": unit, "least": least}, **default)


@dataclass(frozen=True)
class Drop:
    """The frame never arrives."""


@dataclass(frozen=True)
class Duplicate:
    """The frame arrives `copies` more times, one after the other."""

    copy_count: int = _key("copies", Unit.COUNT, 1, default=1)


@dataclass(frozen=True)
class Delay:
    """The frame arrives later, by a fixed time and up to `jitter` more; later frames wait too."""

    by_ns: int = _key("by", Unit.DURATION)
    jitter_ns: int = _key("jitter", Unit.DURATION, default=0)


@dataclass(frozen=True)
class Reorder:
    """The frame lets `by` others pass, or is sent after `within` if none has passed it."""

    by_count: int = _key("by", Unit.COUNT, 1, default=1)
    within_ns: int = _key("within", Unit.DURATION, default=100 * _MS)


@dataclass(frozen=True)
class Corrupt:
    """One bit of the frame is flipped, in the byte `at`, or at a random place from the seed."""

    at: int | None = _key("at", Unit.COUNT, default=None)


@dataclass(frozen=True)
class Cut:
    """The connection ends in both directions once `at` bytes of the frame have been forwarded."""

    at: int = _key("at", Unit.COUNT, default=0)


@dataclass(frozen=True)
class Stall:
    """From this frame on nothing passes in its direction, for some time or forever; the connection stays open."""

    duration_ns: int | None = _key("for", Unit.DURATION, default=None)


@dataclass(frozen=True)
class Throttle:
    """Frames pass at this speed; the proxy then reads no faster either."""

    bytes_per_second: int = _key("rate", Unit.RATE)


@dataclass(frozen=True)
class Fragment:
    """The frame is written in pieces of this size, each separately."""

    size_bytes: int = _key("size", Unit.SIZE, default=1)


@dataclass(frozen=True)
class Coalesce:
    """Frames are collected up to a size or an age of the oldest, and written together."""

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
    """Selects the frames that meet all given conditions. Without conditions: all except those of the handshake."""

    frame_name: str | None = None
    direction: Direction | None = None
    channel: int | None = None
    sequence: tuple[int, int] | None = None  # both inclusive
    offset: int | None = None  # the frame with this byte of its direction's stream
    every: int | None = None  # of those so far, the n-th, 2n-th, …
    nth: int | None = None  # of those so far, this one, from 1
    probability: float = 1.0
    count: int | None = None  # maximum number of frames

    def fits(self, direction: Direction, cut: SplitFrame) -> bool:
        """Return whether the frame itself matches, before counters and random numbers are used."""
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
    """An action, and the selector of its frames. `parse_rule` reads the text of `str` as an equal rule."""

    action: FaultAction
    selector: FrameSelector = FrameSelector()

    @property
    def word(self) -> str:
        """Name of the action in rules and counts."""
        return type(self.action).__name__.lower()

    def __str__(self) -> str:
        return " ".join(_words(self))


class FaultRuleError(ValueError):
    """Raised for a text that is not a rule; the message shows the form of one."""

    def __init__(self, text: str, what: str) -> None:
        super().__init__(f"'{text}' is not a fault rule: {what}")


class _WrongValue(Exception):
    """Raised for a value that its key does not accept."""


def parse_rule(text: str) -> FaultRule:
    """Read one rule. FaultRuleError."""
    words = text.split()
    if not words or words[0] not in ACTIONS:
        raise FaultRuleError(text, f"it must begin with one of {', '.join(ACTIONS)}")
    action_class = ACTIONS[words[0]]
    action_keys = {key.metadata["key"]: key for key in dataclasses.fields(action_class)}
    action: dict[str, Any] = {}
    selector: dict[str, Any] = {}
    for word in words[1:]:
        name, equals, value = word.partition("=")
        try:
            if equals and name in action_keys:
                key = action_keys[name]
                _put(action, key.name, _read(value, key))
            elif equals and name in _SELECTOR_KEYS:
                _put(selector, name, _SELECTOR_KEYS[name](value))
            elif equals:
                known = [*action_keys, *_SELECTOR_KEYS]
                raise _WrongValue(f"'{name}' is not one of its keys: {', '.join(known)}")
            elif word in FRAME_NAMES:
                _put(selector, "frame_name", word)
            elif action_keys and word[0].isdigit():
                key = next(iter(action_keys.values()))
                _put(action, key.name, _read(word, key))
            else:
                raise _WrongValue(
                    f"'{word}' is not a frame; the frames are {', '.join(FRAME_NAMES)}"
                )
        except _WrongValue as error:
            raise FaultRuleError(text, str(error)) from None
    missing = [
        name
        for name, key in action_keys.items()
        if key.default is dataclasses.MISSING and key.name not in action
    ]
    if missing:
        unit: Unit = action_keys[missing[0]].metadata["unit"]
        raise FaultRuleError(text, f"{words[0]} needs {missing[0]}=, {unit.value}")
    return FaultRule(action_class(**action), FrameSelector(**selector))


def _words(rule: FaultRule) -> Iterator[str]:
    yield rule.word
    selector = rule.selector
    if selector.frame_name is not None:
        yield selector.frame_name
    for key in dataclasses.fields(rule.action):
        value = getattr(rule.action, key.name)
        if value is not None and value != key.default:
            yield f"{key.metadata['key']}={_print(value, key.metadata['unit'])}"
    if selector.direction is not None:
        yield f"direction={selector.direction.value}"
    for name in ("channel", "sequence", "offset", "every", "nth", "count"):
        value = getattr(selector, name)
        if isinstance(value, tuple):
            first, last = value
            yield f"{name}={first}" if first == last else f"{name}={first}..{last}"
        elif value is not None:
            yield f"{name}={value}"
    if selector.probability != 1:
        yield f"probability={selector.probability!r}"


def _put(values: dict[str, Any], name: str, value: Any) -> None:
    if name in values:
        raise _WrongValue("a key is given twice")
    values[name] = value


def _read(text: str, key: dataclasses.Field[Any]) -> int:
    unit: Unit = key.metadata["unit"]
    match unit:
        case Unit.COUNT:
            return _whole(text, key.metadata["least"])
        case Unit.DURATION:
            return _with_unit(text, _NS, unit)
        case Unit.SIZE:
            return _with_unit(text, _BYTES, unit, 1)
        case Unit.RATE:
            number, slash, second = text.partition("/")
            if slash and second != "s":
                raise _WrongValue(f"'{text}' is not {unit.value}")
            return _with_unit(number, _BYTES, unit, 1)


def _print(value: int, unit: Unit) -> str:
    if unit is Unit.COUNT:
        return str(value)
    units = _NS if unit is Unit.DURATION else _BYTES
    name, factor = next(
        (name, factor)
        for name, factor in sorted(units.items(), key=lambda item: -item[1])
        if value % factor == 0 and (value or factor == 1)
    )
    return f"{value // factor}{name}" + ("/s" if unit is Unit.RATE else "")


def _with_unit(text: str, units: dict[str, int], unit: Unit, least: int = 0) -> int:
    for name in sorted(units, key=len, reverse=True):
        if text.endswith(name):
            number = text.removesuffix(name)
            if (
                _NUMBER.fullmatch(number)
                and (value := round(Fraction(number) * units[name])) >= least
            ):
                return value
            break
    raise _WrongValue(f"'{text}' is not {unit.value}; units are {', '.join(units)}")


def _whole(text: str, least: int = 0) -> int:
    if not re.fullmatch(r"[0-9]{1,20}", text) or int(text) < least:
        raise _WrongValue(f"'{text}' is not a whole number of at least {least}")
    return int(text)


def _range(text: str) -> tuple[int, int]:
    first, dots, last = text.partition("..")
    found = (_whole(first), _whole(last if dots else first))
    if found[1] < found[0]:
        raise _WrongValue(f"'{text}' is not a range")
    return found


def _direction(text: str) -> Direction:
    try:
        return Direction(text)
    except ValueError:
        raise _WrongValue(f"'{text}' is neither forward nor backward") from None


def _probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise _WrongValue(f"'{text}' is not a probability between 0 and 1")
    return value


_SELECTOR_KEYS: Final[dict[str, Callable[[str], Any]]] = {
    "direction": _direction,
    "channel": _whole,
    "sequence": _range,
    "offset": _whole,
    "every": lambda text: _whole(text, 1),
    "nth": lambda text: _whole(text, 1),
    "count": lambda text: _whole(text, 1),
    "probability": _probability,
}
