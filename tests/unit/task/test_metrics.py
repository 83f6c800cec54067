"""How a task's time is accounted for, with exact values on a manual clock."""

from headrace.core.clock import ManualClock
from headrace.task.metrics import Occupation, TaskTimes


def test_the_shares_of_a_second_sum_to_a_thousand() -> None:
    clock = ManualClock()
    times = TaskTimes(clock)
    clock.advance_ms(250)
    times.occupy(Occupation.IDLE)
    clock.advance_ms(500)
    times.occupy(Occupation.BACK_PRESSURED)
    clock.advance_ms(250)
    values = times.snapshot()
    assert values["busyTimeMsPerSecond"] == 250
    assert values["idleTimeMsPerSecond"] == 500
    assert values["backPressuredTimeMsPerSecond"] == 250


def test_waiting_for_buffers_inside_emit_is_back_pressure() -> None:
    clock = ManualClock()
    times = TaskTimes(clock)
    clock.advance_ms(1000)
    times.hard_back_pressured(400 * 1_000_000)
    values = times.snapshot()
    assert values["busyTimeMsPerSecond"] == 600
    assert values["accumulateBackPressuredTimeMs"] == 400


def test_shares_describe_the_time_since_the_last_snapshot() -> None:
    clock = ManualClock()
    times = TaskTimes(clock)
    clock.advance_ms(1000)
    times.snapshot()
    times.occupy(Occupation.IDLE)
    clock.advance_ms(1000)
    values = times.snapshot()
    assert values["idleTimeMsPerSecond"] == 1000
    assert values["busyTimeMsPerSecond"] == 0
    assert values["accumulateBusyTimeMs"] == 1000
