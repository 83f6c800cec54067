"""BufferDebloater: chooses the number of rows in flight from producers to a task. Pure arithmetic.

Barriers and records wait behind the rows in flight. Under back pressure all
buffers fill up, however slow the task is; this limits them to the rows that it takes in within the target time. Flink
announces smaller buffers for that, so that each carries less for the same overhead. A buffer here is a batch, and the
cost of a slow function depends on its rows: so rows are counted, a batch is a quarter of them at most, and producers
hold back the excess, as credit does.

It begins with few rows, since the speed of the task is still unknown and rows in flight cannot be taken back. It
grows at most by a factor each time that many rows were taken in, until the memory of the gate bounds it.
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
"""Initial number of rows in flight for one gate, before the first measurement."""
UNLIMITED_ROWS: Final = 1 << 40
"""Value announced if memory bounds the rows in flight more closely than time does."""
EDGE_SIDES: Final = 2
"""Both the producer's queue and the receiver's buffers may each hold the chosen number of rows."""
BATCHES_IN_FLIGHT: Final = 4
"""Number of batches into which producers cut the rows in flight: a barrier waits for a whole batch in processing."""
GROWTH_MAX: Final = 4
"""Factor by which a sample may exceed the average, so that one unusually fast period does not open the gates."""


def is_debloated(settings: Settings) -> bool:
    """Return whether the rows in flight of this job's gates are limited by a time target."""
    return settings.get_option(DEBLOAT_ENABLED) or settings.duration_ms(LATENCY_TARGET) > 0


def batch_rows(in_flight_rows: int) -> int:
    """Return the rows of one batch for a consumer that wants `in_flight_rows` in flight; at least 1."""
    return max(1, in_flight_rows // BATCHES_IN_FLIGHT)


class BufferDebloater:
    """Limits the rows in flight of one gate; `rows_min` is the least number with which every channel makes progress."""

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
        """Rows wanted on each side of the connection."""
        self.is_growing = True
        """True until a measurement has shown the speed of the task."""
        self.time_to_consume_ms = 0.0

    @classmethod
    def from_settings(cls, settings: Settings, rows_min: int) -> "BufferDebloater":
        """Make a debloater from the options; of the debloating and the latency target the shorter one applies."""
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
        """Record one period, and return the new number of rows in flight if producers should be told, else None.

        `taken_rows` were taken in during the `active_ms` in which input was available; `waiting_rows` are in flight
        now, and `held_rows_max` fit into the gate's memory.
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
        # Slow start: the task has taken in what was announced, so up to four times as much may come.
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
