"""Waiting for something that other threads or processes do."""

import threading
import time
from collections.abc import Callable


def wait_until(
    condition: Callable[[], bool], timeout_s: float = 60.0, what: str = "the condition"
) -> None:
    """Look again and again until `condition` holds. AssertionError that names `what` after `timeout_s`."""
    pause, end_s = threading.Event(), time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, f"not within {timeout_s:g} s: {what}"
        pause.wait(0.005)
