"""Waits for something that other threads or processes do."""

import threading
import time
from collections.abc import Callable
from typing import Final

_SHORTEST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.2


def wait_until(
    condition: Callable[[], bool], timeout_s: float = 60.0, what: str = "the condition"
) -> None:
    """Check repeatedly until `condition` holds. AssertionError, which names `what`, after `timeout_s`.

    Checks take at most a fifth of the time, as one that lists all processes would otherwise take a processor from them.
    """
    pause, end_s = threading.Event(), time.monotonic() + timeout_s
    looks_s = time.monotonic()
    while not condition():
        now_s = time.monotonic()
        assert now_s < end_s, f"not within {timeout_s:g} s: {what}"
        pause.wait(min(max(_SHORTEST_PAUSE_S, 4 * (now_s - looks_s)), _LONGEST_PAUSE_S))
        looks_s = time.monotonic()
