"""Blocklist: hosts on which TaskManagers are lost again and again, and that get no slots for a while. Pure.

A blocked host serves only what no other TaskManager can serve: a cluster whose hosts are all blocked goes on.
Source: Flink BlocklistTracker, MARK_BLOCKED; there whoever blocks a host decides when, here losses do.
"""

from collections import deque
from typing import Final

from headrace.cluster.resource_manager.options import (
    BLOCKLIST_DURATION,
    BLOCKLIST_LOSSES,
    BLOCKLIST_WINDOW,
)
from headrace.core.config import Settings


class Blocklist:
    """Counts losses by host, at most `_HOSTS_MAX` of them. Times are those of one clock, in ms."""

    _HOSTS_MAX: Final = 10_000

    def __init__(self, settings: Settings) -> None:
        self._losses_max: Final = settings.get_option(BLOCKLIST_LOSSES)
        self._window_ms: Final = settings.duration_ms(BLOCKLIST_WINDOW)
        self._duration_ms: Final = settings.duration_ms(BLOCKLIST_DURATION)
        self._losses: dict[str, deque[float]] = {}
        self._blocked_until_ms: dict[str, float] = {}

    def task_manager_lost(self, host: str, now_ms: float) -> str:
        """Count the loss of a TaskManager; return a sentence where that blocks its host, else an empty text."""
        if self._losses_max == 0 or self.is_blocked(host, now_ms):
            return ""
        losses = self._losses.pop(host, deque[float]())
        losses.append(now_ms)
        while losses[0] <= now_ms - self._window_ms:
            losses.popleft()
        if len(losses) < self._losses_max:
            self._losses[host] = losses
            while len(self._losses) > self._HOSTS_MAX:
                del self._losses[next(iter(self._losses))]
            return ""
        self._blocked_until_ms[host] = now_ms + self._duration_ms
        return (
            f"host {host} has lost {len(losses)} TaskManagers within {self._window_ms / 1000:g} s: for "
            f"{self._duration_ms / 1000:g} s its slots are taken only where no other host has any "
            f"({BLOCKLIST_LOSSES.key})"
        )

    def is_blocked(self, host: str, now_ms: float) -> bool:
        """Return whether the host is blocked; one whose time is over is forgotten."""
        until_ms = self._blocked_until_ms.get(host)
        if until_ms is None:
            return False
        if now_ms >= until_ms:
            del self._blocked_until_ms[host]
            return False
        return True
