"""WatermarkStrategy, which programs write, and the pure generators and idleness detector that operators drive.

Generators and detector know no clock: event timestamps and readings come in, watermarks go out.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.types.time_values import Duration


class TimestampAssigner(ABC):
    """Reads event time off a record."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return epoch ms; `record_timestamp` is what the record had, or the smallest 64-bit number."""


class WatermarkGenerator(Protocol):
    """Turns event timestamps into watermarks; asked after the events went downstream, never before."""

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


@dataclass(frozen=True)
class WatermarkAlignment:
    """Sources of one group stay within `max_drift_ms` of each other."""

    group: str
    max_drift_ms: int
    update_interval_ms: int = 1000


@dataclass(frozen=True)
class WatermarkStrategy:
    """How timestamps and watermarks are made. Immutable: the `with_` methods return a new strategy.

    `bound_ms` is the out-of-orderness, None for no watermarks at all. Without a timestamp assigner the timestamps
    of the source are used.

    Example:
        >>> WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5)).bound_ms
        5000
    """

    bound_ms: int | None
    timestamp_assigner: TimestampAssigner | None = None
    idle_timeout_ms: int | None = None
    alignment: WatermarkAlignment | None = None

    @staticmethod
    def for_monotonous_timestamps() -> "WatermarkStrategy":
        """Timestamps ascend: watermark = largest timestamp - 1."""
        return WatermarkStrategy(0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> "WatermarkStrategy":
        """Records are at most so late: watermark = largest timestamp - bound - 1."""
        return WatermarkStrategy(max_out_of_orderness.to_millis())

    @staticmethod
    def no_watermarks() -> "WatermarkStrategy":
        """None at all."""
        return WatermarkStrategy(None)

    def with_timestamp_assigner(self, timestamp_assigner: TimestampAssigner) -> "WatermarkStrategy":
        """Take timestamps from the records. TypeError for a bare function: PyFlink takes none either."""
        if not isinstance(timestamp_assigner, TimestampAssigner):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"'timestamp_assigner' is a {type(timestamp_assigner).__name__}, not a TimestampAssigner: "
                "derive a class from it with the method extract_timestamp(value, record_timestamp)"
            )
        return replace(self, timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: Duration) -> "WatermarkStrategy":
        """Let an input that is silent for so long no longer hold the watermark back."""
        idle_timeout_ms = idle_timeout.to_millis()
        if idle_timeout_ms <= 0:
            raise ValueError(f"the idle timeout must be above zero, not {idle_timeout}")
        return replace(self, idle_timeout_ms=idle_timeout_ms)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Duration,
        update_interval: Duration | None = None,
    ) -> "WatermarkStrategy":
        """Keep the sources of a group within a drift."""
        interval_ms = 1000 if update_interval is None else update_interval.to_millis()
        alignment = WatermarkAlignment(
            watermark_group, max_allowed_watermark_drift.to_millis(), interval_ms
        )
        return replace(self, alignment=alignment)

    def create_generator(self) -> WatermarkGenerator:
        """Return a fresh generator: one per subtask, or per split."""
        return NoWatermarks() if self.bound_ms is None else BoundedOutOfOrderness(self.bound_ms)

    def create_idleness_detector(self) -> IdlenessDetector | None:
        """Return a fresh detector, or None where silence is no matter."""
        return None if self.idle_timeout_ms is None else IdlenessDetector(self.idle_timeout_ms)
