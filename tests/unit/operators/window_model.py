"""Event-time windows in plain Python, written from their definition: what the window operator is compared with.

Windows hold lists of values; a firing is (key, start, end, sorted values). No code is shared with the operator.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Firing = tuple[Any, int, int, tuple[Any, ...]]


def tumbling(size: int, offset: int) -> Callable[[int], list[tuple[int, int]]]:
    return sliding(size, size, offset)


def sliding(size: int, slide: int, offset: int) -> Callable[[int], list[tuple[int, int]]]:
    def windows(timestamp: int) -> list[tuple[int, int]]:
        starts = [
            s for s in range(timestamp - size + 1, timestamp + 1) if (s - offset) % slide == 0
        ]
        return [(start, start + size) for start in starts]

    return windows


@dataclass
class FixedWindowModel:
    """Tumbling and sliding windows that fire at their end and for each late record; `lateness` in ms."""

    assign: Callable[[int], list[tuple[int, int]]]
    lateness: int
    watermark: int = -(2**63)
    contents: dict[tuple[int, int, Any], list[Any]] = field(default_factory=dict)
    late: list[Any] = field(default_factory=list)

    def record(self, key: Any, value: Any, timestamp: int) -> list[Firing]:
        fired: list[Firing] = []
        windows = self.assign(timestamp)
        accepted = [w for w in windows if w[1] - 1 + self.lateness > self.watermark]
        for start, end in accepted:
            values = self.contents.setdefault((end, start, key), [])
            values.append(value)
            if end - 1 <= self.watermark:
                fired.append((key, start, end, tuple(sorted(values))))
        if not accepted and timestamp + self.lateness <= self.watermark:
            self.late.append(value)
        return fired

    def advance(self, watermark: int) -> list[Firing]:
        fired: list[Firing] = []
        for (end, start, key), values in sorted(self.contents.items()):
            if self.watermark < end - 1 <= watermark:
                fired.append((key, start, end, tuple(sorted(values))))
        for end, start, key in list(self.contents):
            if end - 1 + self.lateness <= watermark:
                del self.contents[end, start, key]
        self.watermark = watermark
        return fired


@dataclass
class SessionModel:
    """Sessions of a fixed gap; a live session is [start, end, values]."""

    gap: int
    lateness: int
    watermark: int = -(2**63)
    sessions: dict[Any, list[tuple[int, int, list[Any]]]] = field(default_factory=dict)
    late: list[Any] = field(default_factory=list)

    def record(self, key: Any, value: Any, timestamp: int) -> list[Firing]:
        start, end, values = timestamp, timestamp + self.gap, [value]
        live = self.sessions.setdefault(key, [])
        touching = [s for s in live if s[0] <= end and start <= s[1]]
        for one in touching:
            start, end, values = min(start, one[0]), max(end, one[1]), one[2] + values
        if end - 1 + self.lateness <= self.watermark:
            assert not touching
            self.late.append(value)
            return []
        self.sessions[key] = [s for s in live if s not in touching] + [(start, end, values)]
        return [(key, start, end, tuple(sorted(values)))] if end - 1 <= self.watermark else []

    def advance(self, watermark: int) -> list[Firing]:
        fired: list[Firing] = []
        for key, live in self.sessions.items():
            for start, end, values in live:
                if self.watermark < end - 1 <= watermark:
                    fired.append((key, start, end, tuple(sorted(values))))
            self.sessions[key] = [s for s in live if s[1] - 1 + self.lateness > watermark]
        self.watermark = watermark
        return fired
