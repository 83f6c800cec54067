"""BufferDebloater: how many bytes should lie between a task and those that send to it. Pure arithmetic.

What is in flight is what a barrier has to wait for, and what a record has to wait behind. Under back pressure all
buffers fill up, however slow the task is; this keeps them at what it takes in within the target time. Flink announces
smaller buffers for that, so that each carries less for the same overhead; here batches stay large as long as they may
and it is their number that shrinks: producers hold back what exceeds the bytes wanted, and so does the credit.
Source: Flink BufferDebloater, ThroughputCalculator, BufferSizeEMA.
"""

from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption, Settings
from headrace.network.latency_governor import LATENCY_TARGET

DEBLOAT_ENABLED: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.enabled", bool, False,
    "Whether the bytes in flight to a task follow what it takes in, so that little waits in front of a slow task.",
)  # fmt: skip
DEBLOAT_TARGET: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.target", timedelta, timedelta(seconds=1),
    "How long a task should take for all that is in flight to it.",
)  # fmt: skip
DEBLOAT_PERIOD: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.period", timedelta, timedelta(milliseconds=200),
    "How often the throughput of a task is looked at for debloating.",
)  # fmt: skip
DEBLOAT_SAMPLES: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.samples", int, 20,
    "Over how many looks the bytes in flight are smoothed.",
)  # fmt: skip
DEBLOAT_THRESHOLD: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.threshold-percentages", int, 25,
    "By how much the bytes in flight have to change before producers are told.",
)  # fmt: skip


class BufferDebloater:
    """One gate's. Starts without a limit, at `bytes_max`."""

    def __init__(
        self,
        target_ms: float,
        samples: int,
        threshold_percent: float,
        bytes_min: int,
        bytes_max: int,
    ) -> None:
        assert 0 < bytes_min <= bytes_max
        self._target_ms = target_ms
        self._alpha = 2 / (samples + 1)
        self._threshold = threshold_percent / 100
        self._bytes_min = bytes_min
        self._bytes_max = bytes_max
        self._average = float(bytes_max)
        self.announced_bytes = bytes_max
        self.time_to_consume_ms = 0.0

    @classmethod
    def from_settings(cls, settings: Settings, bytes_min: int, bytes_max: int) -> "BufferDebloater":
        """Read the options. A latency target is the shorter one of two."""
        target_ms = settings.duration_ms(DEBLOAT_TARGET)
        return cls(
            min(target_ms, settings.duration_ms(LATENCY_TARGET) or target_ms),
            settings.get_option(DEBLOAT_SAMPLES),
            settings.get_option(DEBLOAT_THRESHOLD),
            bytes_min,
            bytes_max,
        )

    def recalculate(self, taken_bytes: int, active_ms: float, waiting_bytes: int) -> int | None:
        """Take note of a period: bytes taken in, and the time in which there was something to take.

        `waiting_bytes` are in flight now. Returns the bytes wanted in flight where producers should be told.
        """
        if active_ms <= 0 or taken_bytes <= 0:
            # An idle gate says nothing about how fast the task is.
            return None
        bytes_per_ms = taken_bytes / active_ms
        self.time_to_consume_ms = waiting_bytes / bytes_per_ms
        # A single lucky period must not open the gates: at most twice what it was.
        sample = min(bytes_per_ms * self._target_ms, 2 * self._average)
        average = self._average + self._alpha * (sample - self._average)
        self._average = min(max(average, self._bytes_min), self._bytes_max)
        wanted = round(self._average)
        change = abs(wanted - self.announced_bytes)
        is_bound = wanted in (self._bytes_min, self._bytes_max)
        if change == 0 or (change < self._threshold * self.announced_bytes and not is_bound):
            return None
        self.announced_bytes = wanted
        return wanted
