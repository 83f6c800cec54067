"""The JVM that Spark's Python library starts for the driver: started without losing it to Ctrl-C, ended for good."""

import signal
import subprocess
import threading
from types import FrameType
from typing import Any

from pyspark.core.context import SparkContext

_EXIT_TIMEOUT_S = 10.0


class DeferredInterrupts:
    """Holds Ctrl-C back while Spark starts, and keeps Spark from putting its own reaction in the program's place.

    A JVM whose start is interrupted half-way belongs to nobody and stays; and Spark's reaction to Ctrl-C would cancel
    TaskManagers before they can stop. The first Ctrl-C is raised at the end of the block, a second one at once.
    Outside of the main thread there is nothing to hold.
    """

    def __init__(self) -> None:
        self._is_main = threading.current_thread() is threading.main_thread()
        self._previous: Any = None
        self.is_interrupted = False

    def __enter__(self) -> "DeferredInterrupts":
        if self._is_main:
            self._previous = signal.signal(signal.SIGINT, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_main:
            signal.signal(signal.SIGINT, self._previous)

    def _remember(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_interrupted:
            raise KeyboardInterrupt
        self.is_interrupted = True


def stop_context() -> None:
    """Stop the context that may have been made, and the JVM below it; both may be gone."""
    context: SparkContext | None = getattr(SparkContext, "_active_spark_context", None)
    if context is not None:
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
