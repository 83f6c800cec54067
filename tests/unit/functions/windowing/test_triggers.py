"""Triggers: when windows fire."""

import pickle
from typing import Any

import pytest

from headrace.core.elements import MAX_WATERMARK
from headrace.core.types.time_values import Time
from headrace.core.types.type_info import Types
from headrace.functions.windowing.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaFunction,
    DeltaTrigger,
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeoutTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
)
from headrace.functions.windows import CountWindow, GlobalWindow, TimeWindow
from tests.unit.functions.windowing.window_contexts import WindowTimers

WINDOW = TimeWindow(0, 10)
CONTINUE, FIRE = TriggerResult.CONTINUE, TriggerResult.FIRE
FIRE_AND_PURGE = TriggerResult.FIRE_AND_PURGE


def test_results_say_what_they_do() -> None:
    assert FIRE.is_fire() and not FIRE.is_purge()
    assert FIRE_AND_PURGE.is_fire() and FIRE_AND_PURGE.is_purge()
    assert TriggerResult.PURGE.is_purge() and not CONTINUE.is_fire()


def test_event_time_waits_for_the_end_of_the_window() -> None:
    trigger, timers = EventTimeTrigger.create(), WindowTimers()
    assert trigger.on_element("a", 3, WINDOW, timers) is CONTINUE
    assert timers.event_timers == {9}
    assert trigger.on_event_time(5, WINDOW, timers) is CONTINUE
    assert trigger.on_event_time(9, WINDOW, timers) is FIRE
    trigger.clear(WINDOW, timers)
    assert timers.is_empty


def test_event_time_fires_again_for_each_late_record() -> None:
    trigger, timers = EventTimeTrigger(), WindowTimers()
    timers.watermark = 9
    assert trigger.on_element("late", 3, WINDOW, timers) is FIRE
    assert timers.is_empty


def test_event_time_waits_for_the_end_of_merged_windows_unless_it_has_passed() -> None:
    trigger, timers = EventTimeTrigger(), WindowTimers()
    timers.watermark = 9
    trigger.on_merge(WINDOW, timers)
    assert timers.is_empty
    trigger.on_merge(TimeWindow(0, 11), timers)
    assert timers.event_timers == {10}


def test_processing_time_waits_for_the_clock() -> None:
    trigger, timers = ProcessingTimeTrigger.create(), WindowTimers()
    assert trigger.on_element("a", 3, WINDOW, timers) is CONTINUE
    assert timers.processing_timers == {9}
    assert trigger.on_processing_time(9, WINDOW, timers) is FIRE
    trigger.clear(WINDOW, timers)
    assert timers.is_empty
    timers.now = 9
    trigger.on_merge(WINDOW, timers)
    assert timers.is_empty


def test_a_count_fires_at_every_nth_record() -> None:
    trigger, timers, window = CountTrigger.of(3), WindowTimers(), CountWindow(0)
    results = [trigger.on_element("a", 0, window, timers) for _ in range(7)]
    assert results == [CONTINUE, CONTINUE, FIRE, CONTINUE, CONTINUE, FIRE, CONTINUE]
    trigger.clear(window, timers)
    assert timers.is_empty


def test_counts_of_merged_windows_add_up() -> None:
    trigger, timers, window = CountTrigger(5), WindowTimers(), CountWindow(0)
    timers.merged_values = [2, 2]
    trigger.on_merge(window, timers)
    assert trigger.on_element("a", 0, window, timers) is FIRE


def test_purging_drops_contents_at_each_firing() -> None:
    trigger, timers, window = PurgingTrigger.of(CountTrigger.of(2)), WindowTimers(), CountWindow(0)
    results = [trigger.on_element("a", 0, window, timers) for _ in range(2)]
    assert results == [CONTINUE, FIRE_AND_PURGE]
    by_time = PurgingTrigger.of(EventTimeTrigger())
    assert by_time.on_event_time(9, WINDOW, timers) is FIRE_AND_PURGE
    assert by_time.can_merge()


def test_never_is_never() -> None:
    trigger, timers, window = NeverTrigger[Any](), WindowTimers(), GlobalWindow.get()
    assert trigger.on_element("a", 0, window, timers) is CONTINUE
    assert trigger.on_event_time(0, window, timers) is CONTINUE
    assert trigger.on_processing_time(0, window, timers) is CONTINUE
    assert not trigger.can_merge() and timers.is_empty


def test_continuous_event_time_fires_at_every_interval_and_at_the_end() -> None:
    trigger, timers = ContinuousEventTimeTrigger.of(Time.milliseconds(4)), WindowTimers()
    assert trigger.on_element("a", 1, WINDOW, timers) is CONTINUE
    assert timers.event_timers == {4, 9}
    assert trigger.on_event_time(3, WINDOW, timers) is CONTINUE
    assert trigger.on_event_time(4, WINDOW, timers) is FIRE
    assert trigger.on_event_time(8, WINDOW, timers) is FIRE
    assert trigger.on_event_time(9, WINDOW, timers) is FIRE
    assert 8 in timers.event_timers and 12 not in timers.event_timers
    timers.watermark = 9
    assert trigger.on_element("late", 1, WINDOW, timers) is FIRE


def test_a_window_without_an_end_does_not_fire_for_all_eternity_at_the_end_of_input() -> None:
    trigger, timers = ContinuousEventTimeTrigger[Any](4), WindowTimers()
    window: Any = GlobalWindow.get()
    trigger.on_element("a", 1, window, timers)
    timers.watermark = MAX_WATERMARK
    timers.event_timers.remove(4)
    assert trigger.on_event_time(4, window, timers) is FIRE
    assert timers.event_timers == {MAX_WATERMARK}
    assert trigger.on_event_time(MAX_WATERMARK, window, timers) is FIRE


def test_the_end_of_the_stream_fires_once() -> None:
    trigger, timers, window = EndOfStreamTrigger[Any](), WindowTimers(), GlobalWindow.get()
    assert trigger.on_element("a", 1, window, timers) is CONTINUE
    assert timers.event_timers == {MAX_WATERMARK}
    assert trigger.on_event_time(5, window, timers) is CONTINUE
    assert trigger.on_processing_time(5, window, timers) is CONTINUE
    assert trigger.on_event_time(MAX_WATERMARK, window, timers) is FIRE
    trigger.clear(window, timers)
    assert timers.is_empty


class Difference(DeltaFunction[int]):
    def get_delta(self, old_data_point: int, new_data_point: int) -> float:
        return new_data_point - old_data_point


@pytest.mark.parametrize("delta", [Difference(), lambda old, new: new - old])
def test_delta_measures_from_the_record_that_it_fired_with_last(delta: Any) -> None:
    trigger, timers = DeltaTrigger.of(2, delta, Types.INT()), WindowTimers()
    results = [trigger.on_element(value, 0, WINDOW, timers) for value in (1, 3, 4, 6, 7)]
    assert results == [CONTINUE, CONTINUE, FIRE, CONTINUE, FIRE]
    assert trigger.on_event_time(9, WINDOW, timers) is CONTINUE
    assert trigger.on_processing_time(9, WINDOW, timers) is CONTINUE
    assert not trigger.can_merge()
    trigger.clear(WINDOW, timers)
    assert timers.is_empty


def test_delta_needs_something_that_measures() -> None:
    no_function: Any = 3
    with pytest.raises(TypeError, match="a DeltaFunction or a callable of two records is needed"):
        DeltaTrigger.of(2, no_function)


def test_a_timeout_fires_so_long_after_the_first_record() -> None:
    trigger, timers = (
        ProcessingTimeoutTrigger.of(CountTrigger.of(3), Time.seconds(1)),
        WindowTimers(),
    )
    assert trigger.on_element("a", 0, WINDOW, timers) is CONTINUE
    timers.now = 400
    assert trigger.on_element("b", 0, WINDOW, timers) is CONTINUE
    assert timers.processing_timers == {1000}
    assert trigger.on_processing_time(1000, WINDOW, timers) is FIRE
    assert timers.is_empty
    assert not trigger.can_merge()


def test_the_nested_trigger_makes_a_timeout_needless() -> None:
    trigger, timers = (
        ProcessingTimeoutTrigger.of(CountTrigger.of(2), Time.seconds(1)),
        WindowTimers(),
    )
    results = [trigger.on_element("a", 0, WINDOW, timers) for _ in range(2)]
    assert results == [CONTINUE, FIRE]
    assert timers.is_empty


def test_records_may_put_a_timeout_off() -> None:
    nested = PurgingTrigger.of(EventTimeTrigger())
    trigger = ProcessingTimeoutTrigger.of(nested, Time.seconds(1), reset_timer_on_new_record=True)
    timers = WindowTimers()
    trigger.on_element("a", 0, WINDOW, timers)
    timers.now = 400
    trigger.on_element("b", 0, WINDOW, timers)
    assert timers.processing_timers == {1400}
    assert trigger.on_event_time(9, WINDOW, timers) is FIRE_AND_PURGE
    assert timers.is_empty


def test_the_nested_trigger_may_go_on_where_it_was_after_a_timeout() -> None:
    trigger = ProcessingTimeoutTrigger.of(
        CountTrigger.of(3), Time.seconds(1), should_clear_on_timeout=False
    )
    timers = WindowTimers()
    results = [trigger.on_element("a", 0, WINDOW, timers) for _ in range(2)]
    timers.processing_timers.remove(1000)
    results.append(trigger.on_processing_time(1000, WINDOW, timers))
    results.append(trigger.on_element("a", 0, WINDOW, timers))
    assert results == [CONTINUE, CONTINUE, FIRE, FIRE]
    assert timers.is_empty


def test_continuous_event_time_leaves_nothing_behind() -> None:
    trigger, timers = ContinuousEventTimeTrigger(4), WindowTimers()
    trigger.on_element("a", 1, WINDOW, timers)
    trigger.clear(WINDOW, timers)
    assert timers.is_empty


def test_merged_windows_keep_the_earliest_next_firing() -> None:
    trigger, timers = ContinuousEventTimeTrigger(4), WindowTimers()
    timers.merged_values = [8, 4]
    trigger.on_merge(WINDOW, timers)
    assert timers.event_timers == {4}


def test_continuous_processing_time_follows_the_clock() -> None:
    trigger, timers = ContinuousProcessingTimeTrigger.of(Time.milliseconds(4)), WindowTimers()
    timers.now = 2
    assert trigger.on_element("a", -5, WINDOW, timers) is CONTINUE
    assert timers.processing_timers == {4}
    for time in (4, 8, 9):
        assert time in timers.processing_timers
        timers.processing_timers.discard(time)
        assert trigger.on_processing_time(time, WINDOW, timers) is FIRE
    assert timers.is_empty
    timers.merged_values = [7]
    trigger.on_merge(WINDOW, timers)
    assert timers.processing_timers == {7}
    trigger.clear(WINDOW, timers)
    assert timers.is_empty


@pytest.mark.parametrize(
    "trigger",
    [
        EventTimeTrigger(),
        CountTrigger(3),
        ContinuousEventTimeTrigger(4),
        PurgingTrigger(ContinuousProcessingTimeTrigger(4)),
        DeltaTrigger(0.5, Difference()),
        ProcessingTimeoutTrigger(CountTrigger(3), 5),
    ],
)
def test_triggers_are_shipped(trigger: Trigger[Any, Any]) -> None:
    assert repr(pickle.loads(pickle.dumps(trigger))) == repr(trigger)


def test_a_trigger_that_cannot_merge_says_so() -> None:
    class Own(NeverTrigger[Any]):
        on_merge = Trigger.on_merge  # type: ignore[assignment]

    with pytest.raises(TypeError, match="does not support merging"):
        Own().on_merge(GlobalWindow.get(), WindowTimers())


@pytest.mark.parametrize("kind", [ContinuousEventTimeTrigger, ContinuousProcessingTimeTrigger])
@pytest.mark.parametrize("interval_ms", [0, -1])
def test_an_interval_in_which_time_stands_still_is_refused(kind: Any, interval_ms: int) -> None:
    with pytest.raises(ValueError, match=f"at least 1 ms, not {interval_ms} ms"):
        kind.of(Time.milliseconds(interval_ms))
