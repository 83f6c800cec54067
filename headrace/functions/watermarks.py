"""WatermarkStrategy, which programs write: how records get their event time, and how watermarks are made of it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace.core.types.time_values import Duration
from headrace.functions.watermark_generators import (
    BoundedOutOfOrderness,
    IdlenessDetector,
    NoWatermarks,
    TimestampGenerator,
    WatermarkGeneratorSupplier,
)

NEVER_IDLE: Final = 0
"""`idle_timeout_ms` of a strategy that waits for silent inputs however long that takes."""


class TimestampAssigner(ABC):
    """Reads event time off a record."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return epoch ms; `record_timestamp` is what the record had, or the smallest 64-bit number."""


@dataclass(frozen=True)
class WatermarkAlignmentParams:
    """Sources of one group stay within `max_drift_ms` of the slowest of them; readers report every interval."""

    group: str
    max_drift_ms: int
    update_interval_ms: int = 1000


@dataclass(frozen=True)
class WatermarkStrategy:
    """How timestamps and watermarks are made. Immutable: the `with_` methods return a new strategy.

    `bound_ms` is the out-of-orderness, None for no watermarks at all or for a generator of one's own. Without a
    timestamp assigner the timestamps of the source are used. `idle_timeout_ms` None takes the job's
    (`headrace.watermarks.idle-timeout`).

    Example:
        >>> WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5)).bound_ms
        5000
    """

    bound_ms: int | None
    timestamp_assigner: TimestampAssigner | None = None
    idle_timeout_ms: int | None = None
    alignment: WatermarkAlignmentParams | None = None
    generator_supplier: WatermarkGeneratorSupplier | None = None

    @staticmethod
    def for_monotonous_timestamps() -> "WatermarkStrategy":
        """Timestamps ascend: watermark = largest timestamp - 1."""
        return WatermarkStrategy(0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> "WatermarkStrategy":
        """Records are at most so late: watermark = largest timestamp - bound - 1. ValueError for a bound below 0."""
        if max_out_of_orderness.to_millis() < 0:
            raise ValueError(f"out-of-orderness must not be below 0, as {max_out_of_orderness} is")
        return WatermarkStrategy(max_out_of_orderness.to_millis())

    @staticmethod
    def no_watermarks() -> "WatermarkStrategy":
        """None at all."""
        return WatermarkStrategy(None)

    @staticmethod
    def for_generator(generator_supplier: WatermarkGeneratorSupplier) -> "WatermarkStrategy":
        """Watermarks are what generators say that `generator_supplier` makes, such as the class of one.

        A generator looks at every record, which costs a call each. TypeError for a generator itself: every subtask
        and every split needs one of its own.

        Example:
            >>> from headrace.functions.watermark_generators import WatermarkGenerator
            >>> class EndOfDay(WatermarkGenerator):
            ...     def on_event(self, event, event_timestamp, output):
            ...         if event == "end of day":
            ...             output.emit_watermark(event_timestamp)
            ...     def on_periodic_emit(self, output):
            ...         pass
            >>> WatermarkStrategy.for_generator(EndOfDay).generator_supplier.__name__
            'EndOfDay'
        """
        if not callable(generator_supplier):
            raise TypeError(
                f"for_generator takes what makes a WatermarkGenerator, such as its class, not {generator_supplier!r}"
            )
        return WatermarkStrategy(None, generator_supplier=generator_supplier)

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

    def without_idleness(self) -> "WatermarkStrategy":
        """Wait for silent inputs however long that takes, whatever the job's idle timeout is."""
        return replace(self, idle_timeout_ms=NEVER_IDLE)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Duration,
        update_interval: Duration | None = None,
    ) -> "WatermarkStrategy":
        """Let sources of a group read at most so far ahead of the slowest one, and so the splits of one reader.

        Only for strategies that are given to a source.
        """
        interval_ms = 1000 if update_interval is None else update_interval.to_millis()
        drift_ms = max_allowed_watermark_drift.to_millis()
        if drift_ms <= 0 or interval_ms <= 0:
            raise ValueError(
                f"drift and update interval must be above zero, not {max_allowed_watermark_drift} and {update_interval}"
            )
        alignment = WatermarkAlignmentParams(watermark_group, drift_ms, interval_ms)
        return replace(self, alignment=alignment)

    def create_generator(self) -> TimestampGenerator:
        """Return a fresh built-in generator: one per subtask, or per split."""
        return NoWatermarks() if self.bound_ms is None else BoundedOutOfOrderness(self.bound_ms)

    def create_idleness_detector(self, default_timeout_ms: int = 0) -> IdlenessDetector | None:
        """Return a fresh detector, or None where silence is no matter.

        `default_timeout_ms` is the job's, 0 for none. A strategy without watermarks is idle only where it says so: who
        never promises anything must not stop holding others back by being silent.
        """
        timeout_ms = self.idle_timeout_ms
        if timeout_ms is None:
            makes_watermarks = self.bound_ms is not None or self.generator_supplier is not None
            timeout_ms = default_timeout_ms if makes_watermarks else 0
        return IdlenessDetector(timeout_ms) if timeout_ms > 0 else None
