"""The answer of the events job in plain Python: a model that takes records and watermarks one at a time."""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Final

from testkit.chaos.records import (
    JOIN_AFTER_MS,
    JOIN_BEFORE_MS,
    LATENESS_MS,
    SESSION_GAP_MS,
    RecordKind,
    joined_row,
    late_row,
    rule_content,
    ruled_row,
    rules_of,
    session_row,
)

_END: Final = 2**63 - 1


@dataclass
class _Session:
    """A session; `end_ms` is its exclusive end. `has_fired`: event time has passed its end since it last grew."""

    start_ms: int
    end_ms: int
    events: list[int] = field(default_factory=list[int])
    has_fired: bool = False

    def touches(self, other: "_Session") -> bool:
        return self.start_ms <= other.end_ms and other.start_ms <= self.end_ms


class SessionModel:
    """Sessions of all keys, and the rows that they emit. Source: Flink WindowOperator, EventTimeTrigger."""

    def __init__(self, key_count: int) -> None:
        self._key_count = key_count
        self._watermark = -_END
        self._sessions: dict[int, list[_Session]] = defaultdict(list)

    def take(self, event: int) -> Iterator[str]:
        """Process an event."""
        key, time = RecordKind.EVENTS.key(event, self._key_count), RecordKind.EVENTS.time_ms(event)
        found = _Session(time, time + SESSION_GAP_MS, [event])
        touched = [one for one in self._sessions[key] if one.touches(found)]
        for one in touched:
            found.start_ms = min(found.start_ms, one.start_ms)
            found.end_ms = max(found.end_ms, one.end_ms)
            found.events += one.events
        if self._is_gone(found):
            yield late_row(key, event)
            return
        self._sessions[key] = [one for one in self._sessions[key] if one not in touched] + [found]
        if found.end_ms - 1 <= self._watermark:
            found.has_fired = True
            yield self._row(key, found)

    def advance(self, watermark: int) -> Iterator[str]:
        """Process a watermark."""
        self._watermark = watermark
        for key, sessions in self._sessions.items():
            for session in sessions:
                if not session.has_fired and session.end_ms - 1 <= watermark:
                    session.has_fired = True
                    yield self._row(key, session)
            sessions[:] = [one for one in sessions if not self._is_gone(one)]

    def _is_gone(self, session: _Session) -> bool:
        return session.end_ms - 1 + LATENESS_MS <= self._watermark

    def _row(self, key: int, session: _Session) -> str:
        return session_row(key, session.start_ms, session.end_ms, sorted(session.events))


def answer_of(event_count: int, key_count: int) -> list[str]:
    """Return every row once, in any order."""
    model, rows = SessionModel(key_count), list[str]()
    for event in range(event_count):
        rows += model.take(event)
        watermark = RecordKind.EVENTS.watermark_behind(event)
        if watermark is not None:
            rows += model.advance(watermark)
    rows += model.advance(_END)
    rows += _pairs(event_count, key_count)
    for event in range(event_count):
        contents = map(rule_content, rules_of(RecordKind.EVENTS.time_ms(event)))
        rows.append(ruled_row(RecordKind.EVENTS.key(event, key_count), event, contents))
    return rows


def _pairs(event_count: int, key_count: int) -> Iterator[str]:
    orders: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for order in range(RecordKind.ORDERS.count(event_count)):
        time = RecordKind.ORDERS.time_ms(order)
        orders[RecordKind.ORDERS.key(order, key_count)].append((time, order))
    for event in range(event_count):
        if RecordKind.EVENTS.is_behind(event):
            continue
        key, time = RecordKind.EVENTS.key(event, key_count), RecordKind.EVENTS.time_ms(event)
        for order_time, order in orders[key]:
            if time - JOIN_BEFORE_MS <= order_time <= time + JOIN_AFTER_MS:
                yield joined_row(key, event, order)


def on_time_place(row: str) -> tuple[Hashable, int] | None:
    """Return key and time of a row that a timer emitted for an event that was on time; None for any other row."""
    kind, _, rest = row.partition(" ")
    if kind != "r":
        return None
    key, event, _ = rest.split(" ")
    number = int(event)
    return None if RecordKind.EVENTS.is_behind(number) else (key, RecordKind.EVENTS.time_ms(number))
