"""SourceAlignment: the reader's part of watermark alignment; reports its watermark, and pauses a reader that is ahead.

Source: Flink SourceOperator.checkWatermarkAlignment, checkSplitWatermarkAlignment.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.errors import ProgramError
from headrace.core.operator_events import (
    ReaderProgress,
    WatermarkBound,
    WatermarkReported,
    decode_aligned_event,
    encode_alignment_event,
    wrap_own_event,
)
from headrace.functions.source import SourceReader
from headrace.functions.watermarks import WatermarkAlignmentParams
from headrace.graph.pipeline_options import ALLOW_UNALIGNED_SOURCE_SPLITS
from headrace.operators.runtime.operator import OperatorContext
from headrace.operators.sources_sinks.split_watermarks import SplitWatermarks


@dataclass(frozen=True)
class Pauses:
    """Effect of an alignment bound on a reader: whether all of it waits, and the splits that must not be read."""

    is_waiting: bool
    split_ids: frozenset[str]


def pauses_of(
    bound_ms: int | None, watermark_ms: int, split_watermarks: Mapping[str, int]
) -> Pauses:
    """Return the pauses from the reader's watermark, and from those of its splits if it has several. Pure."""
    if bound_ms is None:
        return Pauses(False, frozenset())
    ahead = frozenset(
        split_id for split_id, reached in split_watermarks.items() if reached > bound_ms
    )
    return Pauses(watermark_ms > bound_ms, ahead if len(split_watermarks) > 1 else frozenset())


class SourceAlignment:
    """Aligns one reader with others by their watermarks. Mailbox thread only."""

    def __init__(
        self,
        params: WatermarkAlignmentParams,
        context: OperatorContext,
        watermarks: SplitWatermarks,
    ) -> None:
        self._params: Final = params
        self._context: Final = context
        self._watermarks: Final = watermarks
        self._allows_unaligned: Final = context.settings.get_option(ALLOW_UNALIGNED_SOURCE_SPLITS)
        self._reader: SourceReader | None = None
        self._bound_ms: int | None = None
        self._pauses = Pauses(False, frozenset())
        self._has_finished = False

    @property
    def is_waiting(self) -> bool:
        """True while the reader as a whole must not be polled."""
        return self._pauses.is_waiting

    def drift_ms(self) -> int:
        """Return the reader's watermark minus the lowest of its group, in ms; LookupError if unknown. Any thread."""
        bound_ms, watermark_ms = self._bound_ms, self._watermarks.watermark_ms
        if bound_ms is None or watermark_ms in (MIN_TIMESTAMP, MAX_WATERMARK):
            raise LookupError("the group has no watermark, or the reader has none")
        return watermark_ms - (bound_ms - self._params.max_drift_ms)

    def start(self, reader: SourceReader) -> None:
        """Start reporting for this reader."""
        self._reader = reader
        self._schedule()

    def send_own_event(self, payload: bytes) -> None:
        """Send an event of the reader to the source's own coordinator."""
        self._context.send_event(wrap_own_event(payload))

    def take_event(self, payload: bytes) -> bytes | None:
        """Apply a new alignment bound; return the payload of an event for the reader itself."""
        event = decode_aligned_event(payload)
        if isinstance(event, bytes):
            return event
        assert isinstance(event, WatermarkBound)
        self._bound_ms = event.max_watermark_ms
        self.check()
        return None

    def check(self) -> None:
        """Pause and resume according to the present watermarks and bound. ProgramError if splits cannot be paused."""
        watermarks = self._watermarks
        before = self._pauses
        pauses = pauses_of(self._bound_ms, watermarks.watermark_ms, watermarks.split_watermarks)
        if pauses == before:
            return
        if pauses.split_ids != before.split_ids:
            pauses = Pauses(pauses.is_waiting, self._pause(before.split_ids, pauses.split_ids))
        self._pauses = pauses
        watermarks.pause(watermarks.split_watermarks if pauses.is_waiting else pauses.split_ids)
        if before.is_waiting > pauses.is_waiting or before.split_ids - pauses.split_ids:
            self._context.wake()

    def finished(self) -> None:
        """Report that the reader has ended, so that others do not wait for it while its task ends."""
        self._has_finished = True
        self._report(ReaderProgress.FINISHED)

    def _pause(self, before: frozenset[str], now: frozenset[str]) -> frozenset[str]:
        """Pause splits of the reader; return the paused ones."""
        reader = self._reader
        assert reader is not None
        if type(reader).pause_or_resume_splits is SourceReader.pause_or_resume_splits:
            if self._allows_unaligned:
                return frozenset()
            raise ProgramError(
                f"{type(reader).__name__} reads several splits and cannot pause single ones, which watermark "
                f"alignment needs: implement pause_or_resume_splits, or set {ALLOW_UNALIGNED_SOURCE_SPLITS.key} to "
                f"align the "
                "reader as a whole"
            )
        reader.pause_or_resume_splits(sorted(now - before), sorted(before - now))
        return now

    def _schedule(self) -> None:
        timers = self._context.timers
        timers.schedule(timers.now_ms() + self._params.update_interval_ms, self._on_interval)

    def _on_interval(self, _time_ms: int) -> None:
        if self._has_finished:
            return
        if self._watermarks.is_idle:
            self._report(ReaderProgress.IDLE)
        elif self._watermarks.watermark_ms > MIN_TIMESTAMP:
            self._report(ReaderProgress.ACTIVE)
        self._schedule()

    def _report(self, progress: ReaderProgress) -> None:
        report = WatermarkReported(progress, self._watermarks.watermark_ms)
        self._context.send_event(encode_alignment_event(report))
