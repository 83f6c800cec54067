"""Generators of watermarks, and the detector of silent inputs: those that programs write, and the pure built-in ones.

They know no clock: events, timestamps and readings come in, watermarks go out.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Protocol

from headrace.core.elements import MIN_TIMESTAMP


class WatermarkOutput(ABC):
    """Where a generator of one's own says what it knows."""

    @abstractmethod
    def emit_watermark(self, timestamp_ms: int) -> None:
        """No more events up to `timestamp_ms` (epoch ms) are expected; no effect unless it is larger than the last.

        An input that was idle is active again.
        """

    @abstractmethod
    def mark_idle(self) -> None:
        """Do not wait for this input, until its next event or watermark."""

    @abstractmethod
    def mark_active(self) -> None:
        """Wait for this input again."""


class WatermarkGenerator(ABC):
    """Decides about watermarks by looking at every event; one per subtask, or per split of a source.

    What it emits in `on_event` goes out right behind that event, which cuts batches: rows that follow are judged by
    the new watermark. Where events only have to be counted or compared, and the answer can wait for the interval, emit
    in `on_periodic_emit`, every `pipeline.auto-watermark-interval`.
    """

    @abstractmethod
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Look at an event. `event_timestamp`: epoch ms, or the smallest 64-bit number where it has none."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Say what is known by now."""


WatermarkGeneratorSupplier = Callable[[], WatermarkGenerator]
"""Makes a fresh generator, such as its class does. Shipped by value."""


class TimestampGenerator(Protocol):
    """A generator that needs no more than the largest timestamp of each batch, and answers at the interval."""

    def on_event(self, timestamp_ms: int) -> None:
        """Take one event's timestamp."""
        ...

    def on_batch(self, max_timestamp_ms: int) -> None:
        """Take the largest timestamp of a batch: the same as all its events one by one."""
        ...

    def on_periodic_emit(self) -> int | None:
        """Return the watermark, or None where it has not grown since the last answer."""
        ...


class BoundedOutOfOrderness:
    """Watermark = largest timestamp so far - bound - 1. A bound of 0 is for ascending timestamps.

    Source: Flink BoundedOutOfOrdernessWatermarks.
    """

    def __init__(self, bound_ms: int) -> None:
        self._bound_ms: Final = bound_ms
        # The first watermark that subtraction can give is the smallest one, without underflow.
        self._max_timestamp_ms = MIN_TIMESTAMP + bound_ms + 1
        self._last_emitted_ms = MIN_TIMESTAMP

    def on_event(self, timestamp_ms: int) -> None:
        if timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = timestamp_ms

    def on_batch(self, max_timestamp_ms: int) -> None:
        self.on_event(max_timestamp_ms)

    def on_periodic_emit(self) -> int | None:
        watermark_ms = self._max_timestamp_ms - self._bound_ms - 1
        if watermark_ms <= self._last_emitted_ms:
            return None
        self._last_emitted_ms = watermark_ms
        return watermark_ms


class NoWatermarks:
    """Event time stands still until the input ends."""

    def on_event(self, timestamp_ms: int) -> None:
        pass

    def on_batch(self, max_timestamp_ms: int) -> None:
        pass

    def on_periodic_emit(self) -> int | None:
        return None


class IdlenessDetector:
    """Decides whether an input has been silent for too long.

    A check that saw events since the last one starts over; the first silent check starts the wait; a later check
    finds the input idle once more than `timeout_ms` have passed since then. The clock that `now_ms` is read from
    should stand still while the task is back-pressured: an input that may not speak is not idle.
    Source: Flink WatermarksWithIdleness.IdlenessTimer; FLINK-35886.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms: Final = timeout_ms
        self._is_active_since_check = False
        self._silent_since_ms: int | None = None

    def on_activity(self) -> None:
        """Take note that an event came."""
        self._is_active_since_check = True

    def check(self, now_ms: int) -> bool:
        """Return whether the input is idle at `now_ms`, a reading that never goes back."""
        if self._is_active_since_check:
            self._is_active_since_check = False
            self._silent_since_ms = None
            return False
        if self._silent_since_ms is None:
            self._silent_since_ms = now_ms
            return False
        return now_ms - self._silent_since_ms > self._timeout_ms
