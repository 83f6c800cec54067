"""The JVM that Spark's Python library starts for the driver: started without losing it to a signal, ended for good."""

import signal
import subprocess
import threading
import warnings
from types import FrameType
from typing import Any

from pyspark.core.context import SparkContext

_EXIT_TIMEOUT_S = 10.0
_END_TIMEOUT_S = 1.0


class DeferredInterrupts:
    """Holds Ctrl-C and SIGTERM back while Spark starts, and keeps Spark from putting its own reaction in their place.

    A JVM whose launch is interrupted half-way belongs to nobody and stays; and Spark's reaction to Ctrl-C would cancel
    TaskManagers before they can stop. The first of either takes effect at the end of the block; a second one at once
    where the JVM is launched, as a context may wait for its cluster for ever. A SIGTERM that no one handles ends the
    process as always, and the JVM with it. Outside of the main thread there is nothing to hold.
    """

    def __init__(self) -> None:
        self._previous: dict[int, Any] = {}
        self._held: list[int] = []

    def __enter__(self) -> "DeferredInterrupts":
        if threading.current_thread() is threading.main_thread():
            self._hold(signal.SIGINT)
            if callable(signal.getsignal(signal.SIGTERM)):
                self._hold(signal.SIGTERM)
        return self

    def __exit__(self, *_: object) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)
        if signal.SIGTERM in self._held:
            signal.raise_signal(signal.SIGTERM)
        if signal.SIGINT in self._held:
            raise KeyboardInterrupt

    def _hold(self, number: int) -> None:
        self._previous[number] = signal.signal(number, self._remember)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        is_launched = getattr(SparkContext, "_gateway", None) is not None
        if number not in self._held:
            self._held.append(number)
        elif is_launched and number == signal.SIGINT:
            raise KeyboardInterrupt
        elif is_launched:
            self._previous[number](number, frame)


def has_jvm_ended() -> bool:
    """Whether the JVM that was started for us has ended, or ends within a second: a call of it has just failed."""
    process: subprocess.Popen[bytes] | None = getattr(
        getattr(SparkContext, "_gateway", None), "proc", None
    )
    if process is None:
        return False
    try:
        process.wait(timeout=_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def stop_context() -> None:
    """Stop the context that may have been made, and the JVM below it; both may be gone."""
    context: SparkContext | None = getattr(SparkContext, "_active_spark_context", None)
    if context is not None:
        with warnings.catch_warnings():
            # Spark warns of a JVM that it cannot stop: whoever calls says that it has ended.
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                context.stop()
            except OSError:
                # The context has forgotten its JVM, which ended before it, and now ends what it has in Python.
                context.stop()
    stop_jvm()


def stop_jvm() -> None:
    """End the JVM that was started for us: it lives as long as the pipe to its input. That of spark-submit stays."""
    gateway = getattr(SparkContext, "_gateway", None)
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout=_EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # The next session of this process starts a new one.
    for name in ("_gateway", "_jvm"):
        setattr(SparkContext, name, None)
