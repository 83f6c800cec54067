"""Generators of a program's own, idleness by default, and clocks of silence that stop under back pressure."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.errors import UserCodeError
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.time_values import Duration
from headrace.functions.specs.operator_specs import TimestampsAndWatermarksSpec
from headrace.functions.watermarks import WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from headrace.operators.sources_sinks.event_time_output import EventTimeOutput
from headrace.operators.sources_sinks.split_watermarks import SplitWatermarks
from headrace.testing.operator_harness import (
    PICKLED,
    ManualTimer,
    OperatorHarness,
    Rows,
    TimeAt,
)
from headrace.testing.operator_ways import run_all_ways

ASCENDING = WatermarkStrategy.for_monotonous_timestamps()


class Punctuated(WatermarkGenerator):
    """An event `("mark", time)` says that all before `time` are there; "idle" and "active" say just that."""

    def __init__(self) -> None:
        self.count = 0

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self.count += 1
        match event:
            case ("mark", time):
                output.emit_watermark(time)
            case "idle":
                output.mark_idle()
            case "active":
                output.mark_active()
            case "wrong":
                output.emit_watermark(1.5)  # pyright: ignore[reportArgumentType]
            case "error":
                raise ValueError("cannot read it")
            case _:
                pass

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        if self.count >= 3:
            output.emit_watermark(100 + self.count)


def _assigning(strategy: WatermarkStrategy, *, is_bounded: bool = False) -> OperatorHarness:
    return OperatorHarness(TimestampsAndWatermarksSpec(strategy, is_bounded))


def test_a_watermark_goes_out_right_behind_the_event_that_made_it() -> None:
    harness = run_all_ways(
        lambda: _assigning(WatermarkStrategy.for_generator(Punctuated)),
        [Rows([1, ("mark", 10), 2, ("mark", 5), ("mark", 20)], [1, 2, 3, 4, MIN_TIMESTAMP])],
    )
    assert harness.output.main == [
        ("row", 1, 1),
        ("row", ("mark", 10), 2),
        ("watermark", 10),
        ("row", 2, 3),
        ("row", ("mark", 5), 4),
        ("row", ("mark", 20), None),
        ("watermark", 20),
        ("watermark", MAX_WATERMARK),
    ]


def test_batches_are_cut_only_behind_events_at_which_something_was_said() -> None:
    harness = _assigning(WatermarkStrategy.for_generator(Punctuated))
    harness.perform(Rows([1, 2, ("mark", 1), 3, 4]))
    assert [batch.num_rows for batch in harness.output.batches] == [3, 2]


def test_a_generator_is_also_asked_at_the_interval() -> None:
    harness = run_all_ways(
        lambda: _assigning(WatermarkStrategy.for_generator(Punctuated)),
        [Rows([1, 2]), TimeAt(200), Rows([3]), TimeAt(400)],
        finishes=False,
    )
    assert [element[0] for element in harness.output.main] == ["row"] * 3 + ["watermark"]
    assert harness.output.watermarks == [103]


def test_a_generator_may_call_its_input_idle_until_the_next_event() -> None:
    harness = run_all_ways(
        lambda: _assigning(WatermarkStrategy.for_generator(Punctuated)),
        [Rows(["idle", 1, "idle", "active"], [1, 2, 3, 4]), TimeAt(200)],
        finishes=False,
    )
    assert [element[0] for element in harness.output.main] == [
        *["row", "idle", "active", "row"],
        *["row", "idle", "active", "row", "watermark"],
    ]


def test_the_timeout_makes_inputs_of_such_generators_idle_too() -> None:
    strategy = WatermarkStrategy.for_generator(Punctuated).with_idleness(Duration.of_millis(300))
    harness = _assigning(strategy)
    harness.perform(Rows([1]))
    harness.perform(TimeAt(2000))
    assert harness.output.main[-1] == ("idle",)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ("wrong", "TypeError: a watermark is epoch milliseconds as an int, not float 1.5"),
        (
            ("mark", 2**64),
            "ValueError: a watermark must fit into 64 bits, 18446744073709551616 does not",
        ),
        ("error", "ValueError: cannot read it"),
    ],
)
def test_an_error_of_a_generator_is_the_operators(event: Any, text: str) -> None:
    harness = _assigning(WatermarkStrategy.for_generator(Punctuated))
    with pytest.raises(UserCodeError, match=text):
        harness.perform(Rows([event]))


def test_what_makes_something_else_is_told_when_the_operator_opens() -> None:
    strategy = WatermarkStrategy.for_generator(dict)  # pyright: ignore[reportArgumentType]
    with pytest.raises(
        UserCodeError, match=r"for_generator was given a function that returned \{\}"
    ):
        _assigning(strategy)


EVENTS = st.lists(
    st.one_of(st.integers(0, 9), st.tuples(st.just("mark"), st.integers(0, 30))), max_size=15
)


@given(EVENTS)
def test_a_generator_gives_what_it_would_give_event_by_event(events: list[Any]) -> None:
    wanted: list[Any] = []
    last = MIN_TIMESTAMP
    for event in events:
        wanted.append(("row", event, None))
        if isinstance(event, tuple) and event[1] > last:
            last = event[1]
            wanted.append(("watermark", last))
    strategy = WatermarkStrategy.for_generator(Punctuated)
    harness = run_all_ways(lambda: _assigning(strategy), [Rows(events)], finishes=False)
    assert harness.output.main == wanted


def _output(strategy: WatermarkStrategy, **options: Any) -> tuple[OperatorHarness, Any]:
    """An EventTimeOutput of its own beside a harness whose operator does nothing."""
    harness = _assigning(ASCENDING, is_bounded=True)
    output = EventTimeOutput(strategy, harness.context, harness.output, **options)
    return harness, output


def _batch(times: Sequence[int]) -> RecordBatch:
    return RecordBatch.of_rows(BatchType(PICKLED), list(times), np.array(times, dtype=np.int64))


def test_each_split_has_a_generator_of_its_own() -> None:
    class Largest(WatermarkGenerator):
        """Every third event of a split gives a watermark: its time."""

        count = 0

        def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
            self.count += 1
            if self.count % 3 == 0:
                output.emit_watermark(event_timestamp)

        def on_periodic_emit(self, output: WatermarkOutput) -> None:
            pass

    harness, output = _output(WatermarkStrategy.for_generator(Largest), is_bounded=False)
    output.start("")
    output.add_split("a")
    output.add_split("b")
    output.emit(_batch([1, 2, 3, 4]), "a")
    output.emit(_batch([7, 8]), "b")
    assert harness.output.watermarks == []
    output.emit(_batch([9]), "b")
    assert harness.output.watermarks == [3]
    output.emit(_batch([20, 21]), "a")
    assert harness.output.watermarks == [3, 9]


def _looks(harness: OperatorHarness, monkeypatch: pytest.MonkeyPatch) -> int:
    """Count the timers that run in the first ten seconds, each of which schedules the next one."""
    schedule, times_ms = harness.timers.schedule, list[int]()

    def counted(time_ms: int, callback: Callable[[int], None]) -> ManualTimer:
        times_ms.append(time_ms)
        return schedule(time_ms, callback)

    monkeypatch.setattr(harness.timers, "schedule", counted)
    harness.perform(TimeAt(10_000))
    return len(times_ms)


def test_an_input_from_which_nothing_comes_is_looked_at_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _looks(_assigning(ASCENDING), monkeypatch) < 15, "every second"
    assert _looks(_assigning(WatermarkStrategy.for_generator(Punctuated)), monkeypatch) == 50
    soon = ASCENDING.with_idleness(Duration.of_millis(300))
    assert _looks(_assigning(soon), monkeypatch) == 50, "its idleness is a matter of few intervals"


def test_the_watermark_of_rows_after_a_rest_goes_out_after_an_interval() -> None:
    harness = _assigning(ASCENDING)
    harness.perform(TimeAt(10_050))
    harness.perform(Rows([1], [10]))
    harness.perform(TimeAt(10_249))
    assert harness.output.watermarks == []
    harness.perform(TimeAt(10_250))
    assert harness.output.watermarks == [9]


def _time_until_idle(harness: OperatorHarness, until_ms: int = 200_000) -> int | None:
    for now_ms in range(0, until_ms + 1, 200):
        harness.perform(TimeAt(now_ms))
        if harness.output.is_idle:
            return now_ms
    return None


def test_inputs_without_end_become_idle_after_a_minute_unless_the_job_or_the_strategy_says_else() -> (
    None
):
    def idle_after(strategy: WatermarkStrategy, **options: Any) -> int | None:
        spec = TimestampsAndWatermarksSpec(strategy, options.pop("is_bounded", False))
        return _time_until_idle(OperatorHarness(spec, **options))

    timeout = {"headrace.watermarks.idle-timeout": "5 s"}
    never = {"headrace.watermarks.idle-timeout": "0"}
    assert idle_after(ASCENDING) == 60_400
    assert idle_after(ASCENDING, settings=timeout) == 5_400
    assert idle_after(ASCENDING, settings=never) is None
    assert idle_after(ASCENDING, is_bounded=True) is None
    assert idle_after(ASCENDING.without_idleness()) is None
    assert idle_after(ASCENDING.with_idleness(Duration.of_seconds(3)), is_bounded=True) == 3_400
    assert idle_after(WatermarkStrategy.no_watermarks()) is None


def test_rows_without_timestamps_are_no_silence() -> None:
    harness = _assigning(ASCENDING.with_idleness(Duration.of_millis(300)))
    for now_ms in range(200, 4000, 200):
        harness.perform(Rows([1]))
        harness.perform(TimeAt(now_ms))
    assert ("idle",) not in harness.output.main


NOW_MS, AHEAD_MS = 1_000_000, 60_000


def _trusting(strategy: WatermarkStrategy, max_ahead: str = "1 min") -> OperatorHarness:
    return OperatorHarness(
        TimestampsAndWatermarksSpec(strategy),
        settings={"headrace.watermarks.max-ahead": max_ahead},
        start_ms=NOW_MS,
    )


def test_a_record_too_far_ahead_of_the_clock_does_not_move_event_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wrong, right = NOW_MS + AHEAD_MS + 1, NOW_MS + AHEAD_MS
    harness = _trusting(ASCENDING)
    harness.perform(Rows(["a", "b", "c"], [5, wrong, 10**15]))
    harness.perform(TimeAt(NOW_MS + 200))
    assert harness.output.timed_rows == [("a", 5), ("b", wrong), ("c", 10**15)]
    assert harness.output.watermarks == [4]
    assert harness.metrics.counter("numRecordsAheadOfTime").get_count() == 2
    harness.perform(Rows(["d"], [right]))
    harness.perform(Rows(["e"], [10**15]))
    harness.perform(TimeAt(NOW_MS + 400))
    assert harness.output.watermarks == [4, right - 1]
    (told,) = caplog.messages
    assert "a record of 1000000000000000 (epoch ms) is more than 60000 ms ahead" in told


def test_without_a_bound_every_record_moves_event_time() -> None:
    harness = _trusting(ASCENDING, "0")
    harness.perform(Rows(["a"], [10**15]))
    harness.perform(TimeAt(NOW_MS + 200))
    assert harness.output.watermarks == [10**15 - 1]


@given(st.lists(st.lists(st.integers(-100, 200_000), min_size=1, max_size=5), max_size=8))
def test_the_watermark_is_that_of_the_records_that_are_not_too_far_ahead(
    batches: list[list[int]],
) -> None:
    now_ms, trusted = NOW_MS, [MIN_TIMESTAMP + 1]
    bounded, own = _trusting(ASCENDING), _trusting(WatermarkStrategy.for_generator(_Largest))
    for offsets in batches:
        times = [NOW_MS + offset for offset in offsets]
        trusted += [time for time in times if time <= now_ms + AHEAD_MS]
        now_ms += 200
        for harness in (bounded, own):
            harness.perform(Rows(times, times))
            harness.perform(TimeAt(now_ms))
            assert harness.output.watermark_ms == max(trusted) - 1
            assert harness.output.watermark_ms < now_ms + AHEAD_MS


class _Largest(WatermarkGenerator):
    """The largest timestamp less one, said at each event."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(event_timestamp - 1)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Nothing is left to say."""


def test_silence_under_back_pressure_does_not_count() -> None:
    harness = _assigning(ASCENDING.with_idleness(Duration.of_millis(1000)))
    harness.perform(TimeAt(400))
    for now_ms in range(600, 10_001, 200):
        harness.back_pressured_ms += 200
        harness.perform(TimeAt(now_ms))
    assert not harness.output.is_idle
    harness.perform(TimeAt(11_500))
    assert harness.output.is_idle


def test_a_paused_split_is_not_idle_and_others_still_may_be() -> None:
    splits = SplitWatermarks(ASCENDING.with_idleness(Duration.of_millis(100)))
    splits.add_split("paused")
    splits.add_split("silent")
    splits.pause(["paused"])
    for now_ms in range(0, 1000, 50):
        splits.on_periodic_emit(now_ms)
    assert not splits.is_idle
    splits.pause([])
    splits.on_periodic_emit(1100)
    assert not splits.is_idle
    splits.on_periodic_emit(1250)
    splits.on_periodic_emit(1350)
    assert not splits.is_idle
    splits.on_periodic_emit(1351)
    assert splits.is_idle
