"""Windows record at a time, in plain Python, from their written definition: assigners, evictors, lateness, merging.

The reference that the window operator is compared with. No code is shared with it, and everything is found by looking
at all panes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.unit.operators.windowing.reference_triggers import (
    END_OF_TIME,
    Clocks,
    Entry,
    Label,
    Pane,
    ReferenceTrigger,
    distance,
    last_time,
)

Firing = tuple[Any, Label, tuple[Any, ...]]
"""(key, window, values in order)."""


@dataclass
class Fixed:
    """Tumbling (`slide` = `size`) and sliding windows."""

    size: int
    slide: int
    offset: int = 0
    is_event_time: bool = True
    merges: bool = False

    def labels(self, value: Any, time: int, number: int) -> list[Label]:
        starts = [
            start
            for start in range(time, time - self.size, -1)
            if (start - self.offset) % self.slide == 0
        ]
        return [("time", start, start + self.size) for start in starts]


@dataclass
class Sessions:
    """Sessions whose gap is that of the record."""

    gap: Callable[[Any], int]
    is_event_time: bool = True
    merges: bool = True

    def labels(self, value: Any, time: int, number: int) -> list[Label]:
        return [("time", time, time + self.gap(value))]


@dataclass
class Counted:
    """The records [number * slide, number * slide + size) of each key."""

    size: int
    slide: int
    is_event_time: bool = False
    merges: bool = False

    def labels(self, value: Any, time: int, number: int) -> list[Label]:
        windows = range(number // self.slide, -1, -1)
        return [("count", one) for one in windows if number < one * self.slide + self.size]


@dataclass
class Everything:
    is_event_time: bool = False
    merges: bool = False

    def labels(self, value: Any, time: int, number: int) -> list[Label]:
        return [("global",)]


Assigner = Fixed | Sessions | Counted | Everything


# -- evictors: from the entries of a firing to those that stay


def keep_last(count: int) -> Callable[[list[Entry]], list[Entry]]:
    return lambda entries: entries[len(entries) - count :] if len(entries) > count else entries


def keep_recent(time: int) -> Callable[[list[Entry]], list[Entry]]:
    def keep(entries: list[Entry]) -> list[Entry]:
        newest = max((timestamp for _, timestamp in entries), default=0)
        return [one for one in entries if one[1] > newest - time]

    return keep


def keep_close(threshold: float) -> Callable[[list[Entry]], list[Entry]]:
    def keep(entries: list[Entry]) -> list[Entry]:
        return [one for one in entries if distance(one[0], entries[-1][0]) < threshold]

    return keep


@dataclass
class Eviction:
    keep: Callable[[list[Entry]], list[Entry]]
    is_after: bool = False


# -- the operator


@dataclass
class WindowReference:
    """Takes records, watermarks and the clock, and returns what fires. Lateness in ms."""

    assigner: Assigner
    trigger: ReferenceTrigger
    lateness: int = 0
    eviction: Eviction | None = None
    clocks: Clocks = field(default_factory=Clocks)
    panes: list[Pane] = field(default_factory=list[Pane])
    late: list[Any] = field(default_factory=list[Any])
    accepted_count: int = 0
    windowless_count: int = 0
    numbers: dict[Any, int] = field(default_factory=dict[Any, int])

    def record(self, key: Any, value: Any, timestamp: int) -> list[Firing]:
        number = self.numbers.get(key, 0)
        self.numbers[key] = number + 1
        time = timestamp if self.assigner.is_event_time else self.clocks.now
        fired: list[Firing] = []
        is_accepted = False
        for label in self.assigner.labels(value, time, number):
            if self.assigner.merges:
                label = self._merged(key, label)
            if self._is_late(label):
                continue
            is_accepted = True
            pane = self._pane(key, label)
            pane.entries.append((value, timestamp))
            answer = self.trigger.record(pane, (value, timestamp), self.clocks)
            fired += self._obey(pane, answer)
            if self._cleanup(label) < END_OF_TIME:
                pane.timers.add((self._domain, self._cleanup(label)))
        if is_accepted:
            self.accepted_count += 1
        elif self.assigner.is_event_time and timestamp + self.lateness <= self.clocks.watermark:
            self.late.append(value)
        else:
            self.windowless_count += 1
        return fired

    def advance(self, watermark: int) -> list[Firing]:
        self.clocks.watermark = watermark
        return self._run_timers("event", watermark)

    def clock(self, now: int) -> list[Firing]:
        """The clock moves on; a time has come once its millisecond is over."""
        self.clocks.now = now
        return self._run_timers("clock", now - 1)

    @property
    def _domain(self) -> str:
        return "event" if self.assigner.is_event_time else "clock"

    def _cleanup(self, label: Label) -> int:
        lateness = self.lateness if self.assigner.is_event_time else 0
        return min(last_time(label) + lateness, END_OF_TIME)

    def _is_late(self, label: Label) -> bool:
        return self.assigner.is_event_time and self._cleanup(label) <= self.clocks.watermark

    def _pane(self, key: Any, label: Label) -> Pane:
        for pane in self.panes:
            if (pane.key, pane.label) == (key, label):
                return pane
        self.panes.append(Pane(key, label))
        return self.panes[-1]

    def _merged(self, key: Any, label: Label) -> Label:
        """Merge the live windows of the key that the new one touches with it; return the window that it is in."""
        touched = [
            pane
            for pane in self.panes
            if pane.key == key and pane.label[1] <= label[2] and label[1] <= pane.label[2]
        ]
        touched.sort(key=lambda pane: pane.label)
        ends = [label, *(pane.label for pane in touched)]
        merged = ("time", min(one[1] for one in ends), max(one[2] for one in ends))
        if not touched or [pane.label for pane in touched] == [merged]:
            return merged
        grown = Pane(key, merged, [entry for pane in touched for entry in pane.entries])
        self.trigger.merge(grown, touched, self.clocks)
        self.panes = [pane for pane in self.panes if pane not in touched]
        self.panes.append(grown)
        return merged

    def _run_timers(self, domain: str, limit: int) -> list[Firing]:
        fired: list[Firing] = []
        while True:
            due = [
                (time, pane)
                for pane in self.panes
                for kind, time in pane.timers
                if kind == domain and time <= limit
            ]
            if not due:
                return fired
            time, pane = min(due, key=lambda one: one[0])
            pane.timers.remove((domain, time))
            fired += self._obey(pane, self.trigger.timer(pane, domain, time, self.clocks))
            if domain == self._domain and time == self._cleanup(pane.label):
                pane.entries.clear()
                self.trigger.clear(pane)
                self.panes.remove(pane)

    def _obey(self, pane: Pane, answer: frozenset[str]) -> list[Firing]:
        fired: list[Firing] = []
        if "fire" in answer and pane.entries:
            eviction = self.eviction
            if eviction is not None and not eviction.is_after:
                pane.entries = eviction.keep(pane.entries)
            fired.append((pane.key, pane.label, tuple(value for value, _ in pane.entries)))
            if eviction is not None and eviction.is_after:
                pane.entries = eviction.keep(pane.entries)
        if "purge" in answer:
            pane.entries = []
        return fired
