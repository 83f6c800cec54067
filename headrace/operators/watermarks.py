"""SplitWatermarks: one watermark out of the generators of several splits, and whether all of them are idle. Pure.

Source: Flink WatermarkOutputMultiplexer, CombinedWatermarkStatus, WatermarksWithIdleness.
"""

from dataclasses import dataclass

from headrace.core.elements import MIN_TIMESTAMP
from headrace.functions.watermarks import IdlenessDetector, WatermarkGenerator, WatermarkStrategy


@dataclass
class _Split:
    generator: WatermarkGenerator
    detector: IdlenessDetector | None
    watermark_ms: int = MIN_TIMESTAMP
    is_idle: bool = False


class SplitWatermarks:
    """Combines splits: the minimum over those that are not idle, growing only; idle once all are.

    A split that is added starts at the smallest watermark and so holds the combined one where it is; one that is
    released leaves the minimum. Without splits nothing is said.
    """

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self._strategy = strategy
        self._splits: dict[str, _Split] = {}
        self.watermark_ms = MIN_TIMESTAMP
        self.is_idle = False

    def add_split(self, split_id: str) -> None:
        """Take a split into the minimum; no effect where it is there already."""
        if split_id not in self._splits:
            strategy = self._strategy
            self._splits[split_id] = _Split(
                strategy.create_generator(), strategy.create_idleness_detector()
            )

    def release_split(self, split_id: str) -> None:
        """Let a finished split no longer hold others back."""
        self._splits.pop(split_id, None)

    def activate(self, split_id: str) -> None:
        """Rows of the split are about to go downstream: neither it nor the whole is idle."""
        self.add_split(split_id)
        self._splits[split_id].is_idle = False
        self.is_idle = False

    def on_batch(self, split_id: str, max_timestamp_ms: int) -> None:
        """Take note of rows that went downstream; the largest of their timestamps counts."""
        split = self._splits[split_id]
        split.generator.on_batch(max_timestamp_ms)
        if split.detector is not None:
            split.detector.on_activity()

    def on_periodic_emit(self, now_ms: int) -> None:
        """Bring `watermark_ms` and `is_idle` up to date; the clock of `now_ms` stops under back pressure."""
        for split in self._splits.values():
            if split.detector is not None and split.detector.check(now_ms):
                split.is_idle = True
                continue
            watermark_ms = split.generator.on_periodic_emit()
            if watermark_ms is not None:
                split.watermark_ms = watermark_ms
                split.is_idle = False
        active = [split.watermark_ms for split in self._splits.values() if not split.is_idle]
        self.is_idle = bool(self._splits) and not active
        if active:
            self.watermark_ms = max(self.watermark_ms, min(active))
