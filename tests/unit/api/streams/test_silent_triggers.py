"""Triggers that do not fire when a window ends: the program is told as it is written, for the rest is dropped."""

from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Time, Types
from headrace.datastream.window import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeoutTrigger,
    PurgingTrigger,
    SlidingProcessingTimeWindows,
    Trigger,
    TumblingEventTimeWindows,
)

HOUR = TumblingEventTimeWindows.of(Time.hours(1))
WINDOWS: list[Any] = [
    HOUR,
    SlidingProcessingTimeWindows.of(Time.hours(2), Time.hours(1)),
    EventTimeSessionWindows.with_gap(Time.minutes(1)),
]


def warnings_for(
    windows: Any, trigger: Trigger[Any, Any], caplog: pytest.LogCaptureFixture
) -> list[str]:
    env = StreamExecutionEnvironment.get_execution_environment()
    keyed = env.from_collection([1], Types.LONG()).key_by(lambda number: number, Types.LONG())
    keyed.window(windows).trigger(trigger)
    return caplog.messages


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("trigger", [CountTrigger.of(3), PurgingTrigger.of(CountTrigger.of(2))])
def test_a_count_leaves_what_came_since_without_a_result(
    windows: Any, trigger: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (warning,) = warnings_for(windows, trigger, caplog)
    assert warning.startswith(f"{trigger!r} does not fire when a window of {windows!r} ends")


def test_a_trigger_that_never_fires_leaves_everything(caplog: pytest.LogCaptureFixture) -> None:
    (warning,) = warnings_for(HOUR, NeverTrigger(), caplog)
    assert "records since its last firing are dropped without a result" in warning


@pytest.mark.parametrize(
    "trigger",
    [
        EventTimeTrigger.create(),
        PurgingTrigger.of(EventTimeTrigger.create()),
        CountTrigger.of(1),
        ContinuousEventTimeTrigger.of(Time.minutes(1)),
        ProcessingTimeoutTrigger.of(CountTrigger.of(3), Time.minutes(1)),
    ],
)
def test_triggers_that_let_out_the_rest_are_taken_in_silence(
    trigger: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings_for(HOUR, trigger, caplog) == []


def test_windows_without_an_end_drop_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_for(GlobalWindows.create(), CountTrigger.of(3), caplog) == []
