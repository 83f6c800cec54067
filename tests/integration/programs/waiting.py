"""Waiting for what the processes or threads of a cluster are about to do."""

import threading
from collections.abc import Callable


def wait_until(condition: Callable[[], bool]) -> None:
    """Look again and again, for 20 seconds at least."""
    for _ in range(4000):
        if condition():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it did not happen")
