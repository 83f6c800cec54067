"""The reader's side of watermark alignment: what it reports, and when it or one of its splits must wait."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import HeadraceError
from headrace.core.operator_events import (
    ALIGNED_COORDINATOR,
    AlignedSource,
    ReaderProgress,
    WatermarkBound,
    WatermarkReported,
    decode_aligned_event,
    decode_aligned_source,
    encode_alignment_event,
    wrap_own_event,
)
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.time_values import Duration
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.functions.specs.operator_specs import SourceSpec
from headrace.functions.watermarks import WatermarkStrategy
from headrace.operators.sources_sinks.source_alignment import Pauses, pauses_of
from headrace.testing.operator_harness import PICKLED, OperatorHarness, TimeAt

ALIGNED = (
    WatermarkStrategy.for_monotonous_timestamps()
    .with_idleness(Duration.of_seconds(10))
    .with_watermark_alignment("group", Duration.of_millis(50))
)


class _Reader(SourceReader):
    """Each poll gives the next (split, time) of the script as a batch of one row; at its end there is nothing."""

    def __init__(self, source: "_Source", context: SubtaskContext) -> None:
        self.source = source
        self.context = context
        self.script = list(source.script)
        self.events: list[bytes] = []
        source.reader = self

    def start(self) -> None:
        self.context.send_event(b"hello")

    def poll_next(self, output: SourceOutput) -> InputStatus:
        if not self.script:
            return self.source.at_the_end
        for split, _ in self.script:
            if split:
                output.add_split(split)
        split, time = self.script.pop(0)
        times = np.array([time], dtype=np.int64)
        output.emit(RecordBatch.of_rows(BatchType(PICKLED), [time], times), split)
        return InputStatus.MORE_AVAILABLE

    def handle_event(self, payload: bytes) -> None:
        self.events.append(payload)


class _PausingReader(_Reader):
    def __init__(self, source: "_Source", context: SubtaskContext) -> None:
        super().__init__(source, context)
        self.calls: list[tuple[list[str], list[str]]] = []

    def pause_or_resume_splits(self, to_pause: Sequence[str], to_resume: Sequence[str]) -> None:
        self.calls.append((list(to_pause), list(to_resume)))


class _Source(Source):
    at_the_end = InputStatus.NOTHING_AVAILABLE

    def __init__(self, reader_class: type[_Reader], *script: tuple[str, int]) -> None:
        self.reader_class = reader_class
        self.script = script
        self.reader: Any = None

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        return self.reader_class(self, context)

    def coordinator(self) -> tuple[str, bytes] | None:
        return ("own", b"payload")


def _harness(source: _Source, **options: Any) -> OperatorHarness:
    return OperatorHarness(SourceSpec(source, ALIGNED), input_types=[], **options)


def _poll(harness: OperatorHarness) -> InputStatus:
    operator: Any = harness.operator
    return operator.poll(harness.output)


def _bound(harness: OperatorHarness, max_watermark_ms: int | None) -> None:
    harness.operator.handle_event(encode_alignment_event(WatermarkBound(max_watermark_ms)))


def _reports(harness: OperatorHarness) -> list[Any]:
    events = [decode_aligned_event(payload) for payload in harness.events]
    return [event for event in events if not isinstance(event, bytes)]


def test_a_reader_reports_its_watermark_each_interval_once_it_has_one() -> None:
    harness = _harness(_Source(_Reader, ("", 100), ("", 200)))
    harness.perform(TimeAt(1000))
    assert _reports(harness) == []
    _poll(harness)
    harness.perform(TimeAt(2000))
    harness.perform(TimeAt(3000))
    assert _reports(harness) == [WatermarkReported(ReaderProgress.ACTIVE, 99)] * 2


def test_a_silent_reader_reports_that_it_is_idle_and_one_that_ends_that_it_has_finished() -> None:
    source = _Source(_Reader, ("", 100))
    harness = _harness(source)
    _poll(harness)
    assert _poll(harness) is InputStatus.NOTHING_AVAILABLE
    harness.perform(TimeAt(20_000))
    assert _reports(harness)[-1].progress is ReaderProgress.IDLE
    source.at_the_end = InputStatus.END_OF_INPUT
    assert _poll(harness) is InputStatus.END_OF_INPUT
    assert _reports(harness)[-1].progress is ReaderProgress.FINISHED


def test_a_reader_that_is_too_far_ahead_is_not_asked_until_the_bound_has_grown() -> None:
    harness = _harness(_Source(_Reader, ("", 100), ("", 200)))
    _poll(harness)
    harness.perform(TimeAt(200))
    _bound(harness, 98)
    assert _poll(harness) is InputStatus.NOTHING_AVAILABLE
    assert harness.output.rows == [100]
    _bound(harness, 99)
    assert _poll(harness) is InputStatus.MORE_AVAILABLE
    _bound(harness, 0)
    assert _poll(harness) is InputStatus.NOTHING_AVAILABLE
    _bound(harness, None)
    assert _poll(harness) is InputStatus.NOTHING_AVAILABLE
    assert harness.output.rows == [100, 200]


def test_the_drift_of_a_reader_is_its_lead_over_the_slowest_of_its_group() -> None:
    harness = _harness(_Source(_Reader, ("", 100)))
    _bound(harness, 60)
    assert "watermarkAlignmentDrift" not in harness.metrics.snapshot()
    _poll(harness)
    harness.perform(TimeAt(200))
    # The bound is 50 ms, the drift that is allowed, beyond the slowest.
    assert harness.metrics.snapshot()["watermarkAlignmentDrift"] == 99 - 10
    _bound(harness, None)
    assert "watermarkAlignmentDrift" not in harness.metrics.snapshot()


def test_a_reader_that_waits_for_others_is_not_idle() -> None:
    harness = _harness(_Source(_Reader, ("", 100)))
    _poll(harness)
    harness.perform(TimeAt(200))
    _bound(harness, 0)
    for now_ms in range(400, 60_000, 200):
        assert _poll(harness) is InputStatus.NOTHING_AVAILABLE
        harness.perform(TimeAt(now_ms))
    assert not harness.output.is_idle
    assert {report.progress for report in _reports(harness)} == {ReaderProgress.ACTIVE}


def test_of_several_splits_only_those_that_are_ahead_are_paused() -> None:
    source = _Source(_PausingReader, ("a", 100), ("b", 300), ("c", 500), ("a", 101))
    harness = _harness(source)
    for _ in range(3):
        _poll(harness)
    harness.perform(TimeAt(200))
    _bound(harness, 150)
    assert source.reader.calls == [(["b", "c"], [])]
    _bound(harness, 350)
    assert source.reader.calls == [(["b", "c"], []), ([], ["b"])]
    _bound(harness, 50)
    assert source.reader.calls[2:] == [(["a", "b"], [])]
    assert _poll(harness) is InputStatus.NOTHING_AVAILABLE
    assert harness.output.rows == [100, 300, 500]
    _bound(harness, None)
    assert source.reader.calls[3:] == [([], ["a", "b", "c"])]
    assert _poll(harness) is InputStatus.MORE_AVAILABLE


def test_a_reader_that_cannot_pause_splits_fails_unless_the_job_allows_it() -> None:
    script = (("a", 100), ("b", 300))
    harness = _harness(_Source(_Reader, *script))
    for _ in range(2):
        _poll(harness)
    harness.perform(TimeAt(200))
    with pytest.raises(
        HeadraceError, match="_Reader reads several splits and cannot pause single ones"
    ):
        _bound(harness, 150)
    key = "pipeline.watermark-alignment.allow-unaligned-source-splits"
    lenient = _harness(_Source(_Reader, *script), settings={key: "true"})
    for _ in range(2):
        _poll(lenient)
    lenient.perform(TimeAt(200))
    woken: list[None] = []
    object.__setattr__(lenient.context, "wake", lambda: woken.append(None))
    _bound(lenient, 150)
    _poll(lenient)
    _poll(lenient)
    assert woken == []
    _bound(lenient, 50)
    assert _poll(lenient) is InputStatus.NOTHING_AVAILABLE
    _bound(lenient, 150)
    assert woken == [None]


def test_the_readers_own_events_pass_beside_those_of_alignment() -> None:
    source = _Source(_Reader)
    harness = _harness(source)
    assert [decode_aligned_event(payload) for payload in harness.events] == [b"hello"]
    harness.operator.handle_event(wrap_own_event(b"\x01 and so on"))
    assert source.reader.events == [b"\x01 and so on"]


def test_an_aligned_source_has_its_own_coordinator_inside_of_the_aligning_one() -> None:
    plain = WatermarkStrategy.for_monotonous_timestamps()
    source = _Source(_Reader)
    assert SourceSpec(source, None).coordinator() == ("own", b"payload")
    assert SourceSpec(source, plain).coordinator() == ("own", b"payload")
    coordinator = SourceSpec(source, ALIGNED).coordinator()
    assert coordinator is not None
    name, payload = coordinator
    assert name == ALIGNED_COORDINATOR
    assert decode_aligned_source(payload) == AlignedSource("group", 50, ("own", b"payload"))


TIMES = st.integers(-5, 5)


@given(st.none() | TIMES, TIMES, st.dictionaries(st.sampled_from("abc"), TIMES))
def test_what_is_paused_is_what_is_ahead(
    bound_ms: int | None, watermark_ms: int, splits: dict[str, int]
) -> None:
    pauses = pauses_of(bound_ms, watermark_ms, splits)
    if bound_ms is None:
        assert pauses == Pauses(False, frozenset())
        return
    assert pauses.is_waiting == (watermark_ms > bound_ms)
    if len(splits) > 1:
        assert pauses.split_ids == {split for split, time in splits.items() if time > bound_ms}
    else:
        assert not pauses.split_ids
