"""SplitWatermarks: combines the generators of several splits into one watermark and one idleness. Pure.

Source: Flink WatermarkOutputMultiplexer, CombinedWatermarkStatus, WatermarksWithIdleness.
"""

import enum
from collections.abc import Collection
from typing import Any

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.functions.watermarks import (
    IdlenessDetector,
    TimestampGenerator,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)


class SplitActivity(enum.Enum):
    """States of a split. A paused one is not read, and so is neither active nor idle."""

    ACTIVE = "active"
    IDLE = "idle"
    PAUSED = "paused"


class _Said(WatermarkOutput):
    """Collects the watermark and idleness that a user's generator reported since the last poll."""

    def __init__(self) -> None:
        self.watermark_ms: int | None = None
        self.is_idle: bool | None = None

    def emit_watermark(self, timestamp_ms: int) -> None:
        if type(timestamp_ms) is not int:
            raise TypeError(
                f"a watermark is epoch milliseconds as an int, not {type(timestamp_ms).__name__} {timestamp_ms!r:.60}"
            )
        if not MIN_TIMESTAMP <= timestamp_ms <= MAX_WATERMARK:
            raise ValueError(f"a watermark must fit into 64 bits, {timestamp_ms} does not")
        if self.watermark_ms is None or timestamp_ms > self.watermark_ms:
            self.watermark_ms = timestamp_ms
        self.is_idle = False

    def mark_idle(self) -> None:
        self.is_idle = True

    def mark_active(self) -> None:
        self.is_idle = False

    @property
    def is_nothing(self) -> bool:
        return self.watermark_ms is None and self.is_idle is None


class _Split:
    """A split with its watermark generator, built-in or the program's, and its clock of silence."""

    def __init__(
        self,
        generator: TimestampGenerator | None,
        custom: WatermarkGenerator | None,
        detector: IdlenessDetector | None,
    ) -> None:
        self.generator = generator
        self.custom = custom
        self.detector = detector
        self.said = _Said()
        self.watermark_ms = MIN_TIMESTAMP
        self.is_idle = False
        self.is_paused = False
        self.silence_clock_ms = 0

    @property
    def activity(self) -> SplitActivity:
        """Return the present state of the split."""
        if self.is_paused:
            return SplitActivity.PAUSED
        return SplitActivity.IDLE if self.is_idle else SplitActivity.ACTIVE

    def apply_said(self) -> None:
        """Apply the reports of the program's generator."""
        said, self.said = self.said, _Said()
        if said.watermark_ms is not None:
            self.watermark_ms = max(self.watermark_ms, said.watermark_ms)
        if said.is_idle is not None:
            self.is_idle = said.is_idle


class SplitWatermarks:
    """Combines splits: the minimum over those that are not idle, growing only; idle once all are.

    An added split starts at the smallest watermark and so keeps the combined one from growing; a
    released split is left out of the minimum. Without splits there is no watermark. `default_idle_timeout_ms` applies
    if the strategy has no timeout; 0 for none.
    """

    def __init__(self, strategy: WatermarkStrategy, default_idle_timeout_ms: int = 0) -> None:
        self._strategy = strategy
        self._default_idle_timeout_ms = default_idle_timeout_ms
        self._splits: dict[str, _Split] = {}
        self._last_reading_ms = 0
        self.looks_at_events = strategy.generator_supplier is not None
        self.watermark_ms = MIN_TIMESTAMP
        self.is_idle = False

    def add_split(self, split_id: str) -> None:
        """Add a split to the minimum; no effect if it is included already."""
        if split_id not in self._splits:
            self._splits[split_id] = self._new_split()

    def release_split(self, split_id: str) -> None:
        """Remove a finished split, which no longer holds others back."""
        self._splits.pop(split_id, None)

    def pause(self, split_ids: Collection[str]) -> None:
        """Pause exactly these splits: the silence of a paused split is ignored."""
        for split_id, split in self._splits.items():
            was_paused, split.is_paused = split.is_paused, split_id in split_ids
            if was_paused and not split.is_paused and split.detector is not None:
                split.detector.on_activity()  # it could not speak until now

    @property
    def split_watermarks(self) -> dict[str, int]:
        """Return the watermark of each split."""
        return {split_id: split.watermark_ms for split_id, split in self._splits.items()}

    @property
    def split_activities(self) -> dict[str, SplitActivity]:
        """Return the state of each split."""
        return {split_id: split.activity for split_id, split in self._splits.items()}

    def activate(self, split_id: str) -> None:
        """Note that rows of the split are emitted: neither it nor the whole is idle."""
        self.add_split(split_id)
        split = self._splits[split_id]
        split.is_idle = False
        self.is_idle = False
        if split.detector is not None:
            split.detector.on_activity()

    def on_batch(self, split_id: str, max_timestamp_ms: int) -> None:
        """Note emitted rows; the largest of their timestamps counts. For built-in generators."""
        generator = self._splits[split_id].generator
        if generator is not None:
            generator.on_batch(max_timestamp_ms)

    def on_event(self, split_id: str, event: Any, timestamp_ms: int) -> bool:
        """Let the program's generator see an event; return whether it reported something.

        Its report takes effect after `on_event_emitted`, once the event was emitted.
        """
        self.add_split(split_id)
        split = self._splits[split_id]
        assert split.custom is not None
        split.custom.on_event(event, timestamp_ms, split.said)
        return not split.said.is_nothing

    def on_event_emitted(self, split_id: str) -> None:
        """Combine the generator's reports for events that were emitted."""
        self._splits[split_id].apply_said()
        self._combine()

    def on_periodic_emit(self, now_ms: int) -> None:
        """Update `watermark_ms` and `is_idle`; the clock of `now_ms` stops under back pressure."""
        elapsed_ms = now_ms - self._last_reading_ms
        self._last_reading_ms = now_ms
        for split in self._splits.values():
            if not split.is_paused:
                split.silence_clock_ms += elapsed_ms
            if split.detector is not None and split.detector.check(split.silence_clock_ms):
                split.is_idle = True
                continue
            if split.custom is not None:
                split.custom.on_periodic_emit(split.said)
                split.apply_said()
            elif split.generator is not None:
                watermark_ms = split.generator.on_periodic_emit()
                if watermark_ms is not None:
                    split.watermark_ms = watermark_ms
                    split.is_idle = False
        self._combine()

    def _combine(self) -> None:
        active = [split.watermark_ms for split in self._splits.values() if not split.is_idle]
        self.is_idle = bool(self._splits) and not active
        if active:
            self.watermark_ms = max(self.watermark_ms, min(active))

    def _new_split(self) -> _Split:
        strategy = self._strategy
        detector = strategy.create_idleness_detector(self._default_idle_timeout_ms)
        if strategy.generator_supplier is None:
            return _Split(strategy.create_generator(), None, detector)
        custom = strategy.generator_supplier()
        if not isinstance(custom, WatermarkGenerator):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"for_generator was given a function that returned {custom!r}, which is not a WatermarkGenerator"
            )
        return _Split(None, custom, detector)
