"""Metrics of sources and sinks that every connector has."""

from collections.abc import Sequence

import numpy as np
import pytest

from headrace.core.errors import HeadraceError
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.sink import Sink, SinkWriter
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.functions.specs.operator_specs import SinkSpec, SourceSpec
from headrace.functions.watermarks import WatermarkStrategy
from headrace.operators.runtime.operator import SourceOperator
from headrace.testing.operator_harness import PICKLED, OperatorHarness, Rows, TimeAt

ASCENDING = WatermarkStrategy.for_monotonous_timestamps()
LAG, IDLE, PENDING = "currentEmitEventTimeLag", "sourceIdleTime", "pendingRecords"
PENDING_BYTES, WATERMARK_LAG = "pendingBytes", "watermarkLag"


class _TimedSource(Source):
    """Each poll gives the next of some lists of timestamps; what is left of them waits."""

    def __init__(self, *batches: Sequence[int], is_counted: bool = False) -> None:
        self.batches = list(batches)
        self.is_counted = is_counted

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        return _TimedReader(self)


class _TimedReader(SourceReader):
    def __init__(self, source: _TimedSource) -> None:
        self.source = source

    def poll_next(self, output: SourceOutput) -> InputStatus:
        times = np.array(self.source.batches.pop(0), dtype=np.int64)
        output.emit(RecordBatch.of_rows(BatchType(PICKLED), times.tolist(), times))
        return InputStatus.MORE_AVAILABLE

    def pending_record_count(self) -> int | None:
        return sum(map(len, self.source.batches)) if self.source.is_counted else None

    def unreadable_record_count(self) -> int:
        return 4

    def pending_byte_count(self) -> int | None:
        return 8 * sum(map(len, self.source.batches)) if self.source.is_counted else None


def opened(source: Source, strategy: WatermarkStrategy | None = ASCENDING) -> OperatorHarness:
    return OperatorHarness(SourceSpec(source, strategy), input_types=[])


def poll(harness: OperatorHarness) -> None:
    assert isinstance(harness.operator, SourceOperator)
    harness.operator.poll(harness.output)


def test_the_lag_of_a_source_is_the_age_of_its_newest_event_when_it_left() -> None:
    harness = opened(_TimedSource([-30, -10, -20], [-25]))
    assert LAG not in harness.metrics.snapshot()
    harness.clock.advance_ms(5)
    poll(harness)
    harness.clock.advance_ms(100)
    assert harness.metrics.snapshot()[LAG] == 15
    poll(harness)
    assert harness.metrics.snapshot()[LAG] == 115


def test_the_lag_of_a_watermark_grows_until_the_next_one() -> None:
    harness = opened(_TimedSource([-30], [-10]))
    assert WATERMARK_LAG not in harness.metrics.snapshot()
    poll(harness)
    harness.perform(TimeAt(1_000))
    # Of monotonous timestamps the watermark is one less than the newest.
    assert harness.metrics.snapshot()[WATERMARK_LAG] == 1_031
    harness.clock.advance_ms(5)
    assert harness.metrics.snapshot()[WATERMARK_LAG] == 1_036
    without_strategy = opened(_TimedSource([1]), None)
    poll(without_strategy)
    assert WATERMARK_LAG not in without_strategy.metrics.snapshot()


def test_where_no_strategy_looks_at_event_time_there_is_no_lag() -> None:
    harness = opened(_TimedSource([1]), None)
    poll(harness)
    assert LAG not in harness.metrics.snapshot()


def test_a_source_is_idle_since_its_last_record() -> None:
    harness = opened(_TimedSource([1]))
    harness.clock.advance_ms(40)
    assert harness.metrics.snapshot()[IDLE] == 40
    poll(harness)
    assert harness.metrics.snapshot()[IDLE] == 0
    harness.clock.advance_ms(7)
    assert harness.metrics.snapshot()[IDLE] == 7


def test_records_that_wait_are_told_where_the_connector_knows() -> None:
    harness = opened(_TimedSource([1], [2, 3], is_counted=True))
    assert (harness.metrics.snapshot()[PENDING], harness.metrics.snapshot()[PENDING_BYTES]) == (
        3,
        24,
    )
    poll(harness)
    assert harness.metrics.snapshot()[PENDING] == 2
    unknown = opened(_TimedSource([1])).metrics.snapshot()
    assert {PENDING, PENDING_BYTES}.isdisjoint(unknown)


def test_nothing_is_told_of_what_waits_once_the_reader_is_closed() -> None:
    harness = opened(_TimedSource([1], is_counted=True))
    harness.close()
    assert {PENDING, PENDING_BYTES}.isdisjoint(harness.metrics.snapshot())


def test_records_that_could_not_be_read_are_counted_and_known_after_the_end() -> None:
    harness = opened(_TimedSource([1], is_counted=True))
    assert harness.metrics.snapshot()["numRecordsInErrors"] == 4
    harness.close()
    assert harness.metrics.snapshot()["numRecordsInErrors"] == 4


class _RefusingSink(Sink):
    """Takes batches of one row."""

    def create_writer(self, context: SubtaskContext) -> SinkWriter:
        return _RefusingWriter()


class _RefusingWriter(SinkWriter):
    taken_bytes: int | None = None

    def sent_byte_count(self) -> int | None:
        return self.taken_bytes

    def write_batch(self, batch: RecordBatch) -> None:
        if batch.num_rows > 1:
            raise OSError("too many")
        if batch.rows()[0] == "long":
            self.taken_bytes = (self.taken_bytes or 0) + 4

    def flush(self, end_of_input: bool) -> None:
        pass


def test_a_sink_counts_the_records_that_its_writer_took() -> None:
    harness = OperatorHarness(SinkSpec(_RefusingSink()))
    for _ in range(3):
        harness.perform(Rows(["a"]))
    with pytest.raises(HeadraceError, match="too many"):
        harness.perform(Rows(["a", "b"]))
    assert harness.metrics.snapshot()["numRecordsSend"] == 3
    harness.clock.advance_ms(1_500)
    assert harness.metrics.snapshot()["numRecordsSendPerSecond"] == 2


def test_bytes_of_a_sink_are_told_where_the_connector_knows_them_and_after_its_end() -> None:
    harness = OperatorHarness(SinkSpec(_RefusingSink()))
    harness.perform(Rows(["a"]))
    assert "numBytesSend" not in harness.metrics.snapshot()
    harness.perform(Rows(["long"]))
    assert harness.metrics.snapshot()["numBytesSend"] == 4
    harness.close()
    assert harness.metrics.snapshot()["numBytesSend"] == 4
