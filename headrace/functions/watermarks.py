"""WatermarkStrategy: assigns event times to records and generates watermarks.

Contains the base class of programs' watermark generators, the built-in ones, and the detector of idle inputs. They read
no clock: they receive events, timestamps and clock readings, and return watermarks. Event time may also be read from a
column, for whole batches at once.

Source: Flink WatermarkStrategy, WatermarkGenerator.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.errors import RecordTypeError
from headrace.core.types.time_values import Duration

NEVER_IDLE: Final = 0
"""`idle_timeout_ms` of a strategy that waits for silent inputs without limit."""


class WatermarkOutput(ABC):
    """Output to which a user's watermark generator emits watermarks and idleness."""

    @abstractmethod
    def emit_watermark(self, timestamp_ms: int) -> None:
        """Declare that no events up to `timestamp_ms` (epoch ms) are expected any more; ignored unless above the last.

        An idle input becomes active again.
        """

    @abstractmethod
    def mark_idle(self) -> None:
        """Do not wait for this input until its next event or watermark."""

    @abstractmethod
    def mark_active(self) -> None:
        """Wait for this input again."""


class WatermarkGenerator(ABC):
    """Derives watermarks from every event; one per subtask, or per split of a source.

    A watermark emitted in `on_event` follows that event directly, which splits batches: later rows are compared with
    the new watermark. If events only have to be counted or compared and the watermark can wait for the interval, emit
    it in `on_periodic_emit`, every `pipeline.auto-watermark-interval`.
    """

    @abstractmethod
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Look at an event. `event_timestamp`: epoch ms, or the smallest 64-bit number if it has none."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit the current watermark."""


WatermarkGeneratorSupplier = Callable[[], WatermarkGenerator]
"""Function that makes a new generator, such as its class. Shipped by value."""


class TimestampGenerator(Protocol):
    """A generator that needs only the largest timestamp of each batch, and emits periodically."""

    def on_batch(self, max_timestamp_ms: int) -> None:
        """Process the largest timestamp of a batch, which is equivalent to all its events one by one."""
        ...

    def on_periodic_emit(self) -> int | None:
        """Return the watermark, or None if it has not grown since the last call."""
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

    def on_batch(self, max_timestamp_ms: int) -> None:
        self._max_timestamp_ms = max(self._max_timestamp_ms, max_timestamp_ms)

    def on_periodic_emit(self) -> int | None:
        watermark_ms = self._max_timestamp_ms - self._bound_ms - 1
        if watermark_ms <= self._last_emitted_ms:
            return None
        self._last_emitted_ms = watermark_ms
        return watermark_ms


class NoWatermarks:
    """Generator without watermarks: event time stands still until the input ends."""

    def on_batch(self, max_timestamp_ms: int) -> None:
        pass

    def on_periodic_emit(self) -> int | None:
        return None


class IdlenessDetector:
    """Decides whether an input has been silent for too long.

    Events since the last check reset the detector; the first check without events starts the wait; a later check finds
    the input idle once more than `timeout_ms` have passed since then. The clock for `now_ms` should stand still while
    the task is back-pressured, because an input that is blocked is not idle.
    Source: Flink WatermarksWithIdleness.IdlenessTimer; FLINK-35886.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms: Final = timeout_ms
        self._is_active_since_check = False
        self._silent_since_ms: int | None = None

    def on_activity(self) -> None:
        """Record that an event arrived."""
        self._is_active_since_check = True

    def check(self, now_ms: int) -> bool:
        """Return whether the input is idle at `now_ms`, which must never decrease."""
        if self._is_active_since_check:
            self._is_active_since_check = False
            self._silent_since_ms = None
            return False
        if self._silent_since_ms is None:
            self._silent_since_ms = now_ms
            return False
        return now_ms - self._silent_since_ms > self._timeout_ms


class TimestampAssigner(ABC):
    """Reads the event time of a record."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return epoch ms; `record_timestamp` is the record's current one, or the smallest 64-bit number."""


@dataclass(frozen=True)
class WatermarkAlignmentParams:
    """Sources of one group stay within `max_drift_ms` of the slowest; readers report at every interval."""

    group: str
    max_drift_ms: int
    update_interval_ms: int = 1000


@dataclass(frozen=True)
class WatermarkStrategy:
    """Strategy of assigning timestamps and watermarks. Immutable: the `with_` methods return a new strategy.

    `bound_ms` is the out-of-orderness, None for no watermarks at all or for a user's own generator. Without a timestamp
    assigner the timestamps of the source are used. `idle_timeout_ms` None means the job's
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
        """Use ascending timestamps: watermark = largest timestamp - 1."""
        return WatermarkStrategy(0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> "WatermarkStrategy":
        """Use a bound for late records: watermark = largest timestamp - bound - 1. ValueError for a bound below 0."""
        if max_out_of_orderness.to_millis() < 0:
            raise ValueError(f"out-of-orderness must be at least 0, not {max_out_of_orderness}")
        return WatermarkStrategy(max_out_of_orderness.to_millis())

    @staticmethod
    def no_watermarks() -> "WatermarkStrategy":
        """Use no watermarks."""
        return WatermarkStrategy(None)

    @staticmethod
    def for_generator(generator_supplier: WatermarkGeneratorSupplier) -> "WatermarkStrategy":
        """Use watermarks of generators that `generator_supplier` makes; it may be a generator's class.

        A generator is called for every record. TypeError for a generator itself, because every subtask and every split
        needs one of its own.

        Example:
            >>> from headrace.functions.watermarks import WatermarkGenerator
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
                f"for_generator needs a callable that makes a WatermarkGenerator, such as its class, not "
                f"{generator_supplier!r}"
            )
        return WatermarkStrategy(None, generator_supplier=generator_supplier)

    def with_timestamp_assigner(self, timestamp_assigner: TimestampAssigner) -> "WatermarkStrategy":
        """Take timestamps from the records. TypeError for a bare function, as in PyFlink."""
        if not isinstance(timestamp_assigner, TimestampAssigner):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"'timestamp_assigner' is a {type(timestamp_assigner).__name__}, not a TimestampAssigner: "
                "derive a class from it with the method extract_timestamp(value, record_timestamp)"
            )
        return replace(self, timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: Duration) -> "WatermarkStrategy":
        """Let an input that is silent for this time no longer hold the watermark back."""
        idle_timeout_ms = idle_timeout.to_millis()
        if idle_timeout_ms <= 0:
            raise ValueError(f"the idle timeout must be above zero, not {idle_timeout}")
        return replace(self, idle_timeout_ms=idle_timeout_ms)

    def without_idleness(self) -> "WatermarkStrategy":
        """Wait for silent inputs without limit, whatever the job's idle timeout is."""
        return replace(self, idle_timeout_ms=NEVER_IDLE)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Duration,
        update_interval: Duration | None = None,
    ) -> "WatermarkStrategy":
        """Let sources of a group, and the splits of one reader, read at most this far ahead of the slowest one.

        Only for strategies that are passed to a source.
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
        """Return a new built-in generator: one per subtask, or per split."""
        return NoWatermarks() if self.bound_ms is None else BoundedOutOfOrderness(self.bound_ms)

    def create_idleness_detector(self, default_timeout_ms: int = 0) -> IdlenessDetector | None:
        """Return a new detector, or None if idleness is not detected.

        `default_timeout_ms` is the job's, 0 for none. A strategy without watermarks is idle only if it has its own
        timeout: an input that never emits watermarks must not become idle only because it is silent.
        """
        timeout_ms = self.idle_timeout_ms
        if timeout_ms is None:
            makes_watermarks = self.bound_ms is not None or self.generator_supplier is not None
            timeout_ms = default_timeout_ms if makes_watermarks else 0
        return IdlenessDetector(timeout_ms) if timeout_ms > 0 else None


class ColumnTimestampAssigner(TimestampAssigner):
    """Reads event time from the column of that name: a timestamp, a date, or epoch milliseconds as an integer.

    Example:
        >>> from headrace.functions.watermarks import WatermarkStrategy
        >>> by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        ...     ColumnTimestampAssigner("time")
        ... )
    """

    def __init__(self, column: str) -> None:
        self.column = column

    def extract_timestamps(self, columns: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Return epoch ms of each row, shape (num_rows,); RecordTypeError for a null or a column of another type."""
        array = columns.column(self.column)
        kinds, arrow_type = pa.types, array.type
        if array.null_count:
            row = int(pc.index(array.is_null(), True).as_py())
            shown = {key: value[0] for key, value in columns.slice(row, 1).to_pydict().items()}
            raise RecordTypeError(
                shown, str(arrow_type), f"column '{self.column}' is the event time, but is null"
            )
        if kinds.is_timestamp(arrow_type):
            array = array.cast(pa.timestamp("ms", arrow_type.tz), safe=False)
        elif kinds.is_date(arrow_type):
            array = array.cast(pa.timestamp("ms"))
        elif not kinds.is_integer(arrow_type):
            reason = f"column '{self.column}' is not a time: use a timestamp, a date or epoch milliseconds"
            raise RecordTypeError(array[0].as_py(), str(arrow_type), reason)
        return array.cast(pa.int64()).to_numpy()

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        row = pa.RecordBatch.from_arrays([pa.array([value[self.column]])], names=[self.column])
        return int(self.extract_timestamps(row)[0])
