"""BufferDebloater: how many rows should lie between a task and those that send to it. Pure arithmetic.

What is in flight is what a barrier has to wait for, and what a record has to wait behind. Under back pressure all
buffers fill up, however slow the task is; this keeps them at what it takes in within the target time. Flink announces
smaller buffers for that, so that each carries less for the same overhead. A buffer here is a batch, and what a slow
function costs is told by its rows: so rows are counted, a batch is a quarter of them at most, and producers hold back
what exceeds them, as does the credit.

It begins with few, since nobody knows yet how fast the task is, and what was put in its way once it has to work off. It
grows at most by a factor whenever that much was taken in, until the memory of the gate is what bounds it.
Source: Flink BufferDebloater, ThroughputCalculator, BufferSizeEMA; RFC 5681 for the slow start.
"""

from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption, Settings
from headrace.network.flow.latency_governor import LATENCY_TARGET

DEBLOAT_ENABLED: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.enabled", bool, True,
    "Whether the number of rows in flight to a task follows its throughput, so that few wait in front of a slow task, "
    "and barriers pass quickly.",
)  # fmt: skip
DEBLOAT_TARGET: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.target", timedelta, timedelta(milliseconds=200),
    "Time in which a task should process all rows in flight to it.",
)  # fmt: skip
DEBLOAT_PERIOD: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.period", timedelta, timedelta(milliseconds=100),
    "Time between two measurements of a task's throughput; shorter while the number of rows in flight still grows.",
)  # fmt: skip
DEBLOAT_SAMPLES: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.samples", int, 3,
    "Number of measurements over which the number of rows in flight is smoothed.",
)  # fmt: skip
DEBLOAT_THRESHOLD: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.threshold-percentages", int, 25,
    "Percentage by which the number of rows in flight must change before producers are told.",
)  # fmt: skip

ROWS_AT_FIRST: Final = 1024
"""Rows in flight of one gate before anything was measured."""
UNLIMITED_ROWS: Final = 1 << 40
"""Announced where memory bounds what is in flight more closely than time does."""
EDGE_SIDES: Final = 2
"""The producer's queue and the receiver's buffers may each hold what is wanted."""
BATCHES_IN_FLIGHT: Final = 4
"""Into which producers cut what is wanted: a barrier waits for the whole of a batch that is in work."""
GROWTH_MAX: Final = 4
"""Factor by which a sample may exceed the average: a single lucky period must not open the gates."""


def is_debloated(settings: Settings) -> bool:
    """Return whether the gates of a job with these options are limited by time."""
    return settings.get_option(DEBLOAT_ENABLED) or settings.duration_ms(LATENCY_TARGET) > 0


def batch_rows(in_flight_rows: int) -> int:
    """Rows that are enough for one batch, for a consumer that wants so many in flight."""
    return max(1, in_flight_rows // BATCHES_IN_FLIGHT)


class BufferDebloater:
    """One gate's. `rows_min` lets every channel go on."""

    def __init__(
        self, target_ms: float, samples: int, threshold_percent: float, rows_min: int
    ) -> None:
        assert rows_min > 0
        self._sample_ms = target_ms / EDGE_SIDES
        self._alpha = 2 / (samples + 1)
        self._threshold = threshold_percent / 100
        self._rows_min = rows_min
        self._average = float(max(rows_min, ROWS_AT_FIRST))
        self.announced_rows = round(self._average)
        """Wanted on each side of the connection."""
        self.is_growing = True
        """True until something has shown how fast the task is."""
        self.time_to_consume_ms = 0.0

    @classmethod
    def from_settings(cls, settings: Settings, rows_min: int) -> "BufferDebloater":
        """Read the options. A latency target is the shorter one of two."""
        target_ms = settings.duration_ms(DEBLOAT_TARGET)
        return cls(
            min(target_ms, settings.duration_ms(LATENCY_TARGET) or target_ms),
            settings.get_option(DEBLOAT_SAMPLES),
            settings.get_option(DEBLOAT_THRESHOLD),
            rows_min,
        )

    def recalculate(
        self, taken_rows: int, active_ms: float, waiting_rows: float, held_rows_max: float
    ) -> int | None:
        """Take note of a period: rows taken in, and the time in which there was something to take.

        `waiting_rows` are in flight now, and `held_rows_max` is what the memory of the gate has room for. Returns the
        rows wanted in flight where producers should be told.
        """
        if active_ms <= 0 or taken_rows <= 0:
            # An idle gate says nothing about how fast the task is.
            return None
        rows_per_ms = taken_rows / active_ms
        self.time_to_consume_ms = waiting_rows / rows_per_ms
        fitting = rows_per_ms * self._sample_ms
        enough = min(fitting, held_rows_max)
        is_growing = self.is_growing and self._average < enough
        sample = min(fitting, GROWTH_MAX * self._average)
        # Slow start: what was announced has been taken in, so that four times as much may come.
        weight = 1.0 if is_growing else self._alpha
        average = self._average + weight * (sample - self._average)
        self._average = max(min(average, held_rows_max), self._rows_min)
        self.is_growing = is_growing and self._average < enough
        is_unlimited = self._average >= held_rows_max
        wanted = UNLIMITED_ROWS if is_unlimited else max(self._rows_min, round(self._average))
        change = abs(wanted - self.announced_rows)
        is_bound = wanted in (self._rows_min, UNLIMITED_ROWS)
        if change == 0 or (change < self._threshold * self.announced_rows and not is_bound):
            return None
        self.announced_rows = wanted
        return wanted
