"""Timers that fire in slices: the same results, with snapshots between two slices, and nothing overtakes what waits."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import MAX_WATERMARK
from headrace.core.types.type_info import Types
from headrace.functions.process import KeyedProcessFunction
from headrace.functions.specs.operator_specs import KeyedProcessSpec
from headrace.operators.registry import create_operator
from headrace.state.heap.timers import HeapTimerQueue
from headrace.testing.operator_harness import OperatorHarness, Rows, WatermarkAt

FIRST = [lambda value: value[0]]
COUNT = 2_500
OPTION = "execution.checkpointing.unaligned.interruptible-timers.enabled"


class Remind(KeyedProcessFunction):
    """Sets a timer at each record's time and gives what fires; a timer at a time that ends in 7 sets one before it."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        if timestamp % 10 == 7:
            ctx.timer_service().register_event_time_timer(timestamp - 4)
        yield ctx.get_current_key(), timestamp


def harness(*, interruptible: bool = True) -> OperatorHarness:
    made = OperatorHarness(
        KeyedProcessSpec(Remind()),
        keys=FIRST,
        key_type=Types.LONG(),
        settings={OPTION: str(interruptible).lower()},
    )
    made.perform(Rows([(number % 13, 100 + number // 4) for number in range(COUNT)]))
    return made


def begin(made: OperatorHarness, watermark_ms: int) -> None:
    """The watermark comes, and nothing else has had its turn yet."""
    made.watermark_ms = watermark_ms
    made.operator.process_watermark(watermark_ms, made.output)


def all_at_once() -> list[Any]:
    made = harness(interruptible=False)
    begin(made, 2_000)
    return made.output.rows


def test_a_slice_fires_some_timers_and_holds_the_watermark_before_the_next() -> None:
    made = harness()
    begin(made, 2_000)
    fired = len(made.output.rows)
    assert 0 < fired < len(all_at_once())
    assert (made.operator.can_take_input, made.operator.is_drained) == (False, False)
    (held,) = made.output.watermarks
    assert held < 2_000
    last = max(timestamp for _, timestamp in made.output.rows)
    assert held in (last - 1, last)
    made.settle()
    assert made.output.rows == all_at_once()
    assert made.output.watermarks[-1] == 2_000
    assert made.output.watermarks == sorted(set(made.output.watermarks))
    assert (made.operator.can_take_input, made.operator.is_drained) == (True, True)


def test_without_the_option_all_fire_in_one_go() -> None:
    made = harness(interruptible=False)
    begin(made, 2_000)
    assert made.operator.can_take_input
    assert made.output.watermarks == [2_000]
    assert not made.mails


@pytest.mark.parametrize("slices", [0, 1])
def test_a_snapshot_between_two_slices_loses_and_repeats_nothing(slices: int) -> None:
    made = harness()
    begin(made, 2_000)
    for _ in range(slices):
        made.mails.popleft()()
    assert not made.operator.is_drained
    before = made.output.rows
    taken = made.snapshot()
    made.restart(taken)
    made.settle()
    assert len(made.output.rows) == len(all_at_once())
    assert made.output.rows[: len(before)] == before
    assert sorted(made.output.rows) == sorted(all_at_once())


def test_a_second_watermark_and_idleness_wait_for_what_is_open() -> None:
    made = harness()
    begin(made, 600)
    assert not made.operator.is_drained
    begin(made, 2_000)
    made.operator.process_status(True, made.output)
    assert ("idle",) not in made.output.main
    made.settle()
    assert made.output.rows == all_at_once()
    assert made.output.main[-2:] == [("watermark", 2_000), ("idle",)]


def test_records_that_come_meanwhile_see_the_new_watermark() -> None:
    made = harness()
    begin(made, 2_000)
    made.process(made.batch(Rows([(5, 1_999)])))
    assert (5, 1_999) in made.output.rows
    assert made.output.watermarks[-1] == 2_000


def test_the_end_of_time_is_not_overtaken_by_the_end_of_the_input() -> None:
    made = harness()
    begin(made, MAX_WATERMARK)
    made.operator.end_input(0, made.output)
    assert not made.operator.is_drained, "the task does not finish the operator before"
    made.settle()
    assert made.operator.is_drained
    assert made.output.rows == all_at_once()
    assert made.output.watermarks[-1] == MAX_WATERMARK


def test_slices_go_on_where_the_operator_was_restarted() -> None:
    made = harness()
    begin(made, 2_000)
    made.restart(made.snapshot())
    made.perform(WatermarkAt(3_000))
    assert sorted(made.output.rows) == sorted(all_at_once())


def test_an_operator_that_is_never_opened_holds_nothing_up() -> None:
    operator = create_operator(KeyedProcessSpec(Remind()))
    assert (operator.can_take_input, operator.is_drained) == (True, True)


TIMERS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from("abc")), max_size=30)


@given(TIMERS, st.lists(st.booleans(), max_size=40), st.integers(0, 14))
def test_timers_fire_in_the_same_order_however_they_are_sliced(
    timers: list[tuple[int, str]], enough: list[bool], limit_ms: int
) -> None:
    def run(answers: list[bool] | None) -> tuple[list[tuple[int, str]], int]:
        queue, fired = HeapTimerQueue(), list[tuple[int, str]]()
        for time_ms, key in timers:
            queue.register(time_ms, key, None)

        def fire(time_ms: int, key: str, _: object) -> None:
            fired.append((time_ms, key))
            if time_ms % 5 == 3:
                queue.register(time_ms - 2, key, "earlier")
                queue.delete(time_ms + 1, key, None)

        if answers is None:
            assert queue.fire_until(limit_ms, fire)
        else:
            remaining = iter(answers)
            while not queue.fire_until(limit_ms, fire, lambda: next(remaining, False)):
                pass
        return fired, len(queue)

    assert run(enough) == run(None)
