"""Event time enters: watermarks of readers and splits, idleness, assigners; and the pure combination of splits."""

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.errors import HeadraceError, UserCodeError
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.rows import Row
from headrace.core.types.time_values import Duration
from headrace.core.types.type_info import TimestampTypeInfo, Types
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.functions.specs.operator_specs import SourceSpec, TimestampsAndWatermarksSpec
from headrace.functions.watermarks import (
    ColumnTimestampAssigner,
    TimestampAssigner,
    WatermarkStrategy,
)
from headrace.operators.sources_sinks.split_watermarks import SplitWatermarks
from headrace.testing.operator_harness import (
    PICKLED,
    Idle,
    OperatorHarness,
    Rows,
    TimeAt,
    WatermarkAt,
)
from headrace.testing.operator_ways import run_all_ways

ASCENDING = WatermarkStrategy.for_monotonous_timestamps()
BOUNDED = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(5))


class _ScriptedSource(Source):
    """Each poll carries out one script entry: (split, timestamps), "add x", "release x", None, or an exception."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        return _ScriptedReader(list(self.script))


class _ScriptedReader(SourceReader):
    def __init__(self, script: list[Any]) -> None:
        self.script = script

    def poll_next(self, output: SourceOutput) -> InputStatus:
        if not self.script:
            return InputStatus.END_OF_INPUT
        match self.script.pop(0):
            case None:
                return InputStatus.NOTHING_AVAILABLE
            case Exception() as error:
                raise error
            case str(text):
                name, split = text.split()
                (output.add_split if name == "add" else output.release_split)(split)
            case (split, timestamps):
                times = np.array(timestamps, dtype=np.int64)
                output.emit(RecordBatch.of_rows(BatchType(PICKLED), list(timestamps), times), split)
        return InputStatus.MORE_AVAILABLE


def _source(strategy: WatermarkStrategy | None, *script: Any, **changes: Any) -> OperatorHarness:
    return OperatorHarness(
        SourceSpec(_ScriptedSource(*script), strategy), input_types=[], **changes
    )


def _poll(harness: OperatorHarness, count: int = 1) -> InputStatus:
    operator: Any = harness.operator
    return [operator.poll(harness.output) for _ in range(count)][-1]


def test_a_source_sends_a_watermark_each_interval_behind_its_rows() -> None:
    harness = _source(BOUNDED, ("", [100, 90]), ("", [95]), ("", [200]))
    _poll(harness)
    assert harness.output.watermarks == []
    harness.perform(TimeAt(200))
    _poll(harness)
    harness.perform(TimeAt(400))
    _poll(harness)
    harness.perform(TimeAt(600))
    assert harness.output.main == [
        ("row", 100, 100),
        ("row", 90, 90),
        ("watermark", 94),
        ("row", 95, 95),
        ("row", 200, 200),
        ("watermark", 194),
    ]


def test_the_end_of_the_input_sends_the_last_watermark() -> None:
    harness = _source(ASCENDING, ("", [7]))
    harness.poll_to_end()
    assert harness.output.watermarks == [6]


def test_the_interval_is_an_option_and_zero_switches_it_off() -> None:
    often = _source(ASCENDING, ("", [7]), settings={"pipeline.auto-watermark-interval": "50 ms"})
    _poll(often)
    often.perform(TimeAt(50))
    assert often.output.watermarks == [6]
    never = _source(ASCENDING, ("", [7]), settings={"pipeline.auto-watermark-interval": "0"})
    _poll(never)
    never.perform(TimeAt(10_000))
    assert never.output.watermarks == []


def test_without_a_strategy_rows_pass_as_they_are() -> None:
    harness = _source(None, ("", [7]))
    harness.poll_to_end()
    harness.perform(TimeAt(1000))
    assert harness.output.main == [("row", 7, 7)]
    assert harness.timers.pending_count == 0


def test_the_slowest_split_holds_the_watermark_until_it_is_released() -> None:
    harness = _source(
        ASCENDING, "add a", "add b", ("a", [100]), ("b", [50]), "release b", ("a", [110])
    )
    _poll(harness, 3)
    harness.perform(TimeAt(200))
    assert harness.output.watermarks == []
    _poll(harness)
    harness.perform(TimeAt(400))
    assert harness.output.watermarks == [49]
    _poll(harness)
    harness.perform(TimeAt(600))
    assert harness.output.watermarks == [49, 99]
    harness.poll_to_end()
    assert harness.output.watermarks == [49, 99, 109]


def test_a_silent_source_becomes_idle_and_the_next_row_makes_it_active() -> None:
    strategy = ASCENDING.with_idleness(Duration.of_millis(300))
    harness = _source(strategy, ("", [7]), None, ("", [9]))
    assert _poll(harness, 2) is InputStatus.NOTHING_AVAILABLE
    harness.perform(TimeAt(2000))
    assert harness.output.main == [("row", 7, 7), ("watermark", 6), ("idle",)]
    _poll(harness)
    assert harness.output.main[3:] == [("active",), ("row", 9, 9)]


def test_a_source_that_may_not_speak_is_not_idle() -> None:
    strategy = ASCENDING.with_idleness(Duration.of_millis(300))
    harness = _source(strategy, ("", [7]), ("", [9]))
    _poll(harness)  # MORE_AVAILABLE, and then nobody polls: the task is back-pressured
    harness.perform(TimeAt(5000))
    assert ("idle",) not in harness.output.main


def test_an_idle_split_does_not_hold_back_the_others() -> None:
    strategy = ASCENDING.with_idleness(Duration.of_millis(300))
    polls = [("a", [time]) for time in range(100, 120)]
    harness = _source(strategy, "add a", "add b", *polls)
    _poll(harness, 2)
    for index in range(10):
        _poll(harness)
        harness.perform(TimeAt(200 * (index + 1)))
    assert harness.output.watermarks[-1] == 108
    assert ("idle",) not in harness.output.main


class _FieldAssigner(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value["time"] if record_timestamp == MIN_TIMESTAMP else record_timestamp + 1


class _ColumnAssigner(_FieldAssigner):
    def extract_timestamps(self, columns: Any) -> Any:
        return columns.column("time").to_numpy()


ROW = Types.ROW_NAMED(["time"], [Types.LONG()])


@pytest.mark.parametrize("assigner", [_FieldAssigner(), _ColumnAssigner()])
def test_timestamps_are_assigned_in_mid_stream_and_upstream_watermarks_end_there(
    assigner: Any,
) -> None:
    spec = TimestampsAndWatermarksSpec(BOUNDED.with_timestamp_assigner(assigner))
    harness = run_all_ways(
        lambda: OperatorHarness(spec, input_types=[ROW], output_type=ROW),
        [
            Rows([Row(time=30), Row(time=20)]),
            WatermarkAt(1000),
            Idle(True),
            TimeAt(200),
            Rows([Row(time=25)]),
            TimeAt(400),
        ],
    )
    assert harness.output.main == [
        ("row", Row(time=30), 30),
        ("row", Row(time=20), 20),
        ("watermark", 24),
        ("row", Row(time=25), 25),
        ("watermark", MAX_WATERMARK),
    ]


def test_an_assigner_sees_the_timestamp_that_the_record_had() -> None:
    spec = TimestampsAndWatermarksSpec(ASCENDING.with_timestamp_assigner(_FieldAssigner()))
    harness = OperatorHarness(spec)
    harness.perform(Rows([{"time": 1}], [41]))
    assert harness.output.timed_rows == [({"time": 1}, 42)]


def test_a_failing_assigner_names_the_operator() -> None:
    spec = TimestampsAndWatermarksSpec(ASCENDING.with_timestamp_assigner(_FieldAssigner()))
    harness = OperatorHarness(spec, operator_name="Timestamps/Watermarks")
    with pytest.raises(
        UserCodeError, match=r"KeyError: 'time' \(in operator 'Timestamps/Watermarks'"
    ):
        harness.perform(Rows([{}]))


def test_a_failing_reader_names_its_operator_but_errors_of_the_system_stay_what_they_are() -> None:
    with pytest.raises(UserCodeError, match=r"OSError: gone \(in operator 'Source: files'"):
        _poll(_source(None, OSError("gone"), operator_name="Source: files"))
    with pytest.raises(HeadraceError, match=r"^lost$") as caught:
        _poll(_source(None, HeadraceError("lost")))
    assert not isinstance(caught.value, UserCodeError)


SPLIT_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), st.sampled_from("abc"), st.integers(0, 100)),
        st.tuples(st.sampled_from(["add", "release"]), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("emit"), st.just(""), st.just(0)),
    )
)


@given(SPLIT_STEPS)
def test_the_combined_watermark_is_the_minimum_of_the_splits_and_never_falls(
    steps: Sequence[tuple[str, str, int]],
) -> None:
    splits = SplitWatermarks(ASCENDING)
    watermarks: dict[str, int] = {}
    combined = MIN_TIMESTAMP
    for name, split, number in steps:
        if name == "batch":
            splits.activate(split)
            splits.on_batch(split, number)
            watermarks[split] = max(watermarks.get(split, MIN_TIMESTAMP), number - 1)
        elif name == "add":
            splits.add_split(split)
            watermarks.setdefault(split, MIN_TIMESTAMP)
        elif name == "release":
            splits.release_split(split)
            watermarks.pop(split, None)
        else:
            splits.on_periodic_emit(0)
            combined = max(combined, min(watermarks.values(), default=MIN_TIMESTAMP))
            assert splits.watermark_ms == combined
            assert not splits.is_idle


@pytest.mark.parametrize(
    ("time_type", "first"),
    [
        (Types.LONG(), 1_357_016_400_000),
        (TimestampTypeInfo("UTC"), datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)),
        (Types.SQL_DATE(), datetime.date(2013, 1, 1)),
    ],
)
def test_a_column_gives_the_event_time_of_whole_batches(time_type: Any, first: Any) -> None:
    row_type = Types.ROW_NAMED(["time"], [time_type])
    assigner = ColumnTimestampAssigner("time")
    spec = TimestampsAndWatermarksSpec(ASCENDING.with_timestamp_assigner(assigner))
    harness = OperatorHarness(spec, input_types=[row_type], output_type=row_type)
    harness.perform(Rows([Row(time=first)]))
    expected = 1_357_016_400_000 - (
        18_000_000 if isinstance(time_type, type(Types.SQL_DATE())) else 0
    )
    assert harness.output.timed_rows == [(Row(time=first), expected)]
    assert assigner.extract_timestamp(Row(time=first), MIN_TIMESTAMP) == expected


@pytest.mark.parametrize(
    ("value_type", "value", "text"),
    [
        (Types.LONG(), None, "is the event time, but is null"),
        (Types.STRING(), "x", "is not a time"),
    ],
)
def test_a_column_that_gives_no_time_is_explained(value_type: Any, value: Any, text: str) -> None:
    row_type = Types.ROW_NAMED(["time"], [value_type])
    assigner = ColumnTimestampAssigner("time")
    spec = TimestampsAndWatermarksSpec(ASCENDING.with_timestamp_assigner(assigner))
    harness = OperatorHarness(spec, input_types=[row_type], output_type=row_type)
    with pytest.raises(UserCodeError, match=text):
        harness.perform(Rows([Row(time=value)]))
