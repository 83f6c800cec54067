"""Records of the events job: the contents that follow from their numbers, and the rows that are made of them. Pure."""

import enum
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

BEGIN_MS: Final = 10_000
SESSION_GAP_MS: Final = 150
LATENESS_MS: Final = 300
"""Time for which a session is kept after its end, in ms."""
JOIN_BEFORE_MS: Final = 120
JOIN_AFTER_MS: Final = 180
RULE_SPAN_MS: Final = 500
_RULES_BEGIN_MS: Final = BEGIN_MS - 2_000
"""Begin of the rules, before any event, including late ones."""
_JITTER_MS: Final = 80
_BOUND_MS: Final = 100
"""Allowed disorder of event time in ms; larger than that of the records that are on time."""
_EVENT_MS: Final = 2
_ORDER_MS: Final = 6
_EVENTS_PER_WATERMARK: Final = 16
_ORDERS_PER_WATERMARK: Final = 8
_BEHIND_EVERY: Final = 23
_BEHIND_MS: Final = (250, 600, 1_200)
"""Delays of late events in ms: one makes its session fire again, the others mostly come too late."""


class RecordKind(enum.Enum):
    """The sources. A record is its number in its source, counted from 0."""

    EVENTS = "events"
    ORDERS = "orders"
    RULES = "rules"

    def count(self, event_count: int) -> int:
        """Return the number of records in the time span of `event_count` events."""
        span_ms = event_count * _EVENT_MS
        match self:
            case RecordKind.EVENTS:
                return event_count
            case RecordKind.ORDERS:
                return span_ms // _ORDER_MS
            case RecordKind.RULES:
                return rule_of(BEGIN_MS + span_ms) + 1

    def key(self, number: int, key_count: int) -> int:
        """Return the key of an event or order."""
        return self._drawn(number) % key_count

    def is_behind(self, number: int) -> bool:
        """Return whether a record is an event from long before its neighbours."""
        return self is RecordKind.EVENTS and number % _BEHIND_EVERY == _BEHIND_EVERY // 2

    def time_ms(self, number: int) -> int:
        """Return the event time, epoch ms."""
        if self is RecordKind.RULES:
            return _RULES_BEGIN_MS + number * RULE_SPAN_MS
        drawn = self._drawn(number) // 1_000
        if self.is_behind(number):
            return self._base_ms(number) - _BEHIND_MS[drawn % len(_BEHIND_MS)]
        return self._base_ms(number) - drawn % _JITTER_MS

    def watermark_behind(self, number: int) -> int | None:
        """Return the watermark after a record, epoch ms, or None."""
        match self:
            case RecordKind.RULES:
                return self.time_ms(number)
            case RecordKind.EVENTS:
                every = _EVENTS_PER_WATERMARK
            case RecordKind.ORDERS:
                every = _ORDERS_PER_WATERMARK
        return self._base_ms(number) - _BOUND_MS if number % every == every - 1 else None

    def _base_ms(self, number: int) -> int:
        return BEGIN_MS + number * (_EVENT_MS if self is RecordKind.EVENTS else _ORDER_MS)

    def _drawn(self, number: int) -> int:
        """Return a pseudo-random value that is the same for the same record."""
        return zlib.crc32(b"%s %d" % (self.value.encode(), number))


def rule_of(time_ms: int) -> int:
    """Return the newest rule at that time."""
    return (time_ms - _RULES_BEGIN_MS) // RULE_SPAN_MS


def rules_of(time_ms: int) -> tuple[int, int]:
    """Return the rules that an event at that time looks up: the newest, and the first, which only state still has."""
    return rule_of(time_ms), 0


def rule_content(rule: int) -> int:
    """Return the content of a rule."""
    return zlib.crc32(b"%d" % rule)


def session_row(key: int, start_ms: int, end_ms: int, events: Sequence[int]) -> str:
    """Return the row that a session emits when it fires; `events` ascend."""
    checksum = zlib.crc32(" ".join(map(str, events)).encode())
    return f"s {key} {start_ms} {end_ms} {len(events)} {checksum}"


def late_row(key: int, event: int) -> str:
    """Return the row of an event that came too late for every session."""
    return f"l {key} {event}"


def joined_row(key: int, event: int, order: int) -> str:
    """Return the row of an event and an order that are close in time."""
    return f"j {key} {event} {order}"


def ruled_row(key: int, event: int, contents: Iterable[object]) -> str:
    """Return the row of an event with the contents of its rules."""
    return f"r {key} {event} {'/'.join(map(str, contents))}"
