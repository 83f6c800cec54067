"""Triggers record at a time, in plain Python, from their written definition; for `window_reference`.

A pane is a window of a key with its records, the memory of its trigger and its timers. An answer of a trigger is a set
of "fire" and "purge".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

END_OF_TIME = 2**63 - 1
BEFORE_TIME = -(2**63)

Label = tuple[Any, ...]
"""A window: ("time", start, end), ("count", number) or ("global",)."""

Entry = tuple[Any, int]
"""(value, timestamp) of a record in a window."""


def last_time(label: Label) -> int:
    return label[2] - 1 if label[0] == "time" else END_OF_TIME


@dataclass
class Pane:
    key: Any
    label: Label
    entries: list[Entry] = field(default_factory=list[Entry])
    memory: dict[str, Any] = field(default_factory=dict[str, Any])
    timers: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])

    @property
    def last(self) -> int:
        return last_time(self.label)


@dataclass
class Clocks:
    watermark: int = BEFORE_TIME
    now: int = 0


def distance(one: Any, other: Any) -> float:
    return abs(one[1] - other[1])


NOTHING: frozenset[str] = frozenset()
FIRE = frozenset({"fire"})


class ReferenceTrigger:
    def record(self, pane: Pane, entry: Entry, clocks: Clocks) -> frozenset[str]:
        return NOTHING

    def timer(self, pane: Pane, domain: str, time: int, clocks: Clocks) -> frozenset[str]:
        return NOTHING

    def merge(self, pane: Pane, merged: Sequence[Pane], clocks: Clocks) -> None:
        raise AssertionError("does not merge")

    def clear(self, pane: Pane) -> None:
        pass


class AtTheEnd(ReferenceTrigger):
    """When event time (`domain` "event") or the clock ("clock") passes the end of the window."""

    def __init__(self, domain: str) -> None:
        self.domain = domain

    def record(self, pane: Pane, entry: Entry, clocks: Clocks) -> frozenset[str]:
        if self.domain == "event" and pane.last <= clocks.watermark:
            return FIRE
        pane.timers.add((self.domain, pane.last))
        return NOTHING

    def timer(self, pane: Pane, domain: str, time: int, clocks: Clocks) -> frozenset[str]:
        if domain != self.domain:
            return NOTHING
        return FIRE if domain == "clock" or time == pane.last else NOTHING

    def merge(self, pane: Pane, merged: Sequence[Pane], clocks: Clocks) -> None:
        if pane.last > (clocks.watermark if self.domain == "event" else clocks.now):
            pane.timers.add((self.domain, pane.last))

    def clear(self, pane: Pane) -> None:
        pane.timers.discard((self.domain, pane.last))


class AfterCount(ReferenceTrigger):
    def __init__(self, count: int) -> None:
        self.count = count

    def record(self, pane: Pane, entry: Entry, clocks: Clocks) -> frozenset[str]:
        pane.memory["count"] = pane.memory.get("count", 0) + 1
        if pane.memory["count"] < self.count:
            return NOTHING
        del pane.memory["count"]
        return FIRE

    def merge(self, pane: Pane, merged: Sequence[Pane], clocks: Clocks) -> None:
        counts = [one.memory["count"] for one in merged if "count" in one.memory]
        if counts:
            pane.memory["count"] = sum(counts)

    def clear(self, pane: Pane) -> None:
        pane.memory.pop("count", None)


class Again(ReferenceTrigger):
    """Every `interval` of event time or of the clock, and at the end of the window."""

    def __init__(self, domain: str, interval: int) -> None:
        self.domain = domain
        self.interval = interval

    def record(self, pane: Pane, entry: Entry, clocks: Clocks) -> frozenset[str]:
        time = clocks.now
        if self.domain == "event":
            if pane.last <= clocks.watermark:
                return FIRE
            pane.timers.add(("event", pane.last))
            time = entry[1]
        if "next" not in pane.memory:
            begin = int(time / self.interval) * self.interval  # towards zero
            self._set(pane, begin)
        return NOTHING

    def _set(self, pane: Pane, begin: int) -> None:
        pane.memory["next"] = min(begin + self.interval, pane.last)
        pane.timers.add((self.domain, pane.memory["next"]))

    def timer(self, pane: Pane, domain: str, time: int, clocks: Clocks) -> frozenset[str]:
        if domain != self.domain:
            return NOTHING
        if domain == "event" and time == pane.last:
            return FIRE
        if pane.memory.get("next") != time:
            return NOTHING
        del pane.memory["next"]
        is_over = pane.last == END_OF_TIME == clocks.watermark
        if time != pane.last and not (domain == "event" and is_over):
            self._set(pane, time)
        return FIRE

    def merge(self, pane: Pane, merged: Sequence[Pane], clocks: Clocks) -> None:
        times = [one.memory["next"] for one in merged if "next" in one.memory]
        if times:
            pane.memory["next"] = min(times)
            pane.timers.add((self.domain, min(times)))

    def clear(self, pane: Pane) -> None:
        if "next" in pane.memory:
            pane.timers.discard((self.domain, pane.memory.pop("next")))
        if self.domain == "event":
            pane.timers.discard(("event", pane.last))


class TooFar(ReferenceTrigger):
    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def record(self, pane: Pane, entry: Entry, clocks: Clocks) -> frozenset[str]:
        if "last" in pane.memory and distance(pane.memory["last"], entry[0]) <= self.threshold:
            return NOTHING
        is_first = "last" not in pane.memory
        pane.memory["last"] = entry[0]
        return NOTHING if is_first else FIRE

    def clear(self, pane: Pane) -> None:
        pane.memory.pop("last", None)


class Purging(ReferenceTrigger):
    def __init__(self, nested: ReferenceTrigger) -> None:
        self.nested = nested

    def record(self, pane: Pane, entry: Entry, clocks: Clocks) -> frozenset[str]:
        return self._purging(self.nested.record(pane, entry, clocks))

    def timer(self, pane: Pane, domain: str, time: int, clocks: Clocks) -> frozenset[str]:
        return self._purging(self.nested.timer(pane, domain, time, clocks))

    def _purging(self, answer: frozenset[str]) -> frozenset[str]:
        return answer | {"purge"} if "fire" in answer else answer

    def merge(self, pane: Pane, merged: Sequence[Pane], clocks: Clocks) -> None:
        self.nested.merge(pane, merged, clocks)

    def clear(self, pane: Pane) -> None:
        self.nested.clear(pane)


class OrTimeout(ReferenceTrigger):
    def __init__(self, nested: ReferenceTrigger, timeout: int, resets: bool, clears: bool) -> None:
        self.nested = nested
        self.timeout = timeout
        self.resets = resets
        self.clears = clears

    def record(self, pane: Pane, entry: Entry, clocks: Clocks) -> frozenset[str]:
        answer = self.nested.record(pane, entry, clocks)
        if "fire" in answer:
            self.clear(pane)
            return answer
        if "timeout" in pane.memory and self.resets:
            pane.timers.discard(("clock", pane.memory.pop("timeout")))
        if "timeout" not in pane.memory:
            pane.memory["timeout"] = clocks.now + self.timeout
            pane.timers.add(("clock", clocks.now + self.timeout))
        return answer

    def timer(self, pane: Pane, domain: str, time: int, clocks: Clocks) -> frozenset[str]:
        answer = self.nested.timer(pane, domain, time, clocks)
        if self.clears:
            self.clear(pane)
        return FIRE | (answer & {"purge"})

    def clear(self, pane: Pane) -> None:
        if "timeout" in pane.memory:
            pane.timers.discard(("clock", pane.memory.pop("timeout")))
        self.nested.clear(pane)


class Never(ReferenceTrigger):
    pass
