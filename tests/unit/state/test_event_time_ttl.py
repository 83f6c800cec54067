"""Time to live in event time: accesses at records' timestamps, expiry by watermarks; on every kind of state."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.core.operator_spec import OperatorSpec
from headrace.core.types.time_values import Time
from headrace.core.types.type_info import Types
from headrace.functions.process import KeyedProcessFunction, ProcessWindowFunction
from headrace.functions.record import MapFunction
from headrace.functions.runtime_context import RuntimeContext
from headrace.functions.specs.operator_specs import KeyedProcessSpec, MapSpec
from headrace.functions.state import ValueStateDescriptor
from headrace.functions.state_ttl import StateTtlConfig, TtlTimeCharacteristic
from headrace.functions.windowing.assigners import GlobalWindows
from headrace.functions.windowing.triggers import CountTrigger, Trigger, TriggerResult
from headrace.testing.operator_harness import OperatorHarness, Rows, WatermarkAt, snapshot
from tests.unit.operators.window_specs import window_spec
from tests.unit.state.entries import total_entry_count
from tests.unit.state.ttl_states import (
    ALL_KINDS,
    Home,
    at_record,
    elements,
    entries,
    on_backend,
    read,
    value,
    write,
)

TEN_MS = Time.milliseconds(10)


@pytest.fixture(params=["hashmap", "rocksdb"], autouse=True)
def chosen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with on_backend(request.param, tmp_path) as backend:
        yield backend


def ttl() -> StateTtlConfig.Builder:
    return StateTtlConfig.new_builder(TEN_MS).use_event_time()


def test_the_builder_says_which_clock_it_is() -> None:
    of_enum = StateTtlConfig.new_builder(TEN_MS).set_ttl_time_characteristic(
        TtlTimeCharacteristic.EventTime
    )
    assert of_enum.build() == ttl().build()
    assert ttl().build().get_ttl_time_characteristic() is TtlTimeCharacteristic.EventTime
    assert ttl().build() != ttl().use_processing_time().build()


@ALL_KINDS
def test_the_watermark_at_timestamp_plus_time_to_live_lets_it_expire(describe: Any) -> None:
    home, descriptor = Home(), describe()
    state = home.state(descriptor, ttl())
    home.event_clock.advance(95)
    at_record(home.event_clock, 100)
    write(state, descriptor)
    home.clock.advance_ms(1_000_000)
    home.event_clock.advance(109)
    assert read(state, descriptor) == 1
    home.event_clock.advance(110)
    assert read(state, descriptor) is None
    assert total_entry_count(home.backend) == 0


@ALL_KINDS
def test_a_late_record_leaves_what_lives_from_the_watermark_on(describe: Any) -> None:
    home, descriptor = Home(), describe()
    state = home.state(descriptor, ttl())
    home.event_clock.advance(100)
    at_record(home.event_clock, 20)
    write(state, descriptor)
    home.event_clock.advance(109)
    assert read(state, descriptor) == 1
    home.event_clock.advance(110)
    assert read(state, descriptor) is None


@pytest.mark.parametrize("describe", [value, entries])
def test_of_records_out_of_order_the_latest_counts(describe: Any) -> None:
    home, descriptor = Home(), describe()
    state = home.state(descriptor, ttl())
    for timestamp in (100, 93):
        at_record(home.event_clock, timestamp)
        write(state, descriptor)
    home.event_clock.advance(109)
    assert read(state, descriptor) == 1


@ALL_KINDS
def test_reading_renews_in_event_time_where_asked(describe: Any) -> None:
    home, descriptor = Home(), describe()
    state = home.state(descriptor, ttl().update_ttl_on_read_and_write())
    for timestamp in (100, 108, 104):
        at_record(home.event_clock, timestamp)
        if timestamp == 100:
            write(state, descriptor)
        assert read(state, descriptor) == 1
    home.event_clock.advance(117)
    home.event_clock.end_batch()
    assert read(state, descriptor) == 1
    home.event_clock.advance(127)
    assert read(state, descriptor) is None


@ALL_KINDS
def test_nothing_expires_before_there_is_event_time(describe: Any) -> None:
    home, descriptor = Home(), describe()
    state = home.state(descriptor, ttl())
    write(state, descriptor)
    home.clock.advance_ms(1_000_000)
    assert read(state, descriptor) == 1
    home.event_clock.advance(5000)
    home.event_clock.advance(5009)
    assert read(state, descriptor) == 1
    home.event_clock.advance(5010)
    assert read(state, descriptor) is None


@ALL_KINDS
def test_a_snapshot_keeps_event_times_before_the_epoch_too(describe: Any) -> None:
    home, descriptor = Home(), describe()
    at_record(home.event_clock, -1)
    write(home.state(descriptor, ttl()), descriptor)
    again, descriptor = Home(snapshot(home.states), start_ms=9_000), describe()
    state = again.state(descriptor, ttl())
    again.event_clock.advance(8)
    assert read(state, descriptor) == 1
    again.event_clock.advance(9)
    assert read(state, descriptor) is None


@ALL_KINDS
def test_event_time_may_be_added_and_taken_away(describe: Any) -> None:
    home, descriptor = Home(), describe()
    write(home.state(descriptor), descriptor)
    with_ttl, descriptor = Home(snapshot(home.states)), describe()
    state = with_ttl.state(descriptor, ttl())
    with_ttl.event_clock.advance(500)
    with_ttl.event_clock.advance(509)
    assert read(state, descriptor) == 1
    kept = snapshot(with_ttl.states)
    with_ttl.event_clock.advance(510)
    assert read(state, descriptor) is None
    without, descriptor = Home(kept), describe()
    state = without.state(descriptor)
    without.event_clock.advance(5_000)
    assert read(state, descriptor) == 1


def test_accesses_sweep_away_what_the_watermark_has_passed(chosen: str) -> None:
    home = Home()
    state = home.state(value(), ttl())
    for number in range(20):
        home.backend.set_current_key(number)
        at_record(home.event_clock, number)
        state.update(number)
    home.event_clock.advance(25)
    home.backend.set_current_key("another")
    for _ in range(4 if chosen == "hashmap" else 150):
        state.update(1)
    assert home.backend.key_count("value") == 5  # of 16 to 19, and this one


def test_expired_elements_stay_out_of_a_snapshot_where_asked() -> None:
    home = Home()
    state = home.state(elements(), ttl().cleanup_full_snapshot().disable_cleanup_in_background())
    for timestamp in (100, 105):
        at_record(home.event_clock, timestamp)
        state.add(1)
    home.event_clock.advance(110)
    (chunk,) = snapshot(home.states).chunks
    assert chunk.row_count == 1


@pytest.fixture
def backend_settings(chosen: str, tmp_path: Path) -> dict[str, str]:
    return {"state.backend.type": chosen, "state.backend.rocksdb.localdir": str(tmp_path)}


class _Counting(KeyedProcessFunction):
    """Emits how often its key was seen within its time, and at a timer 1 ms before its end once more."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("count", Types.LONG())
        descriptor.enable_time_to_live(ttl().build())
        self.count = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        timestamp = ctx.timestamp()
        assert timestamp is not None
        ctx.timer_service().register_event_time_timer(timestamp + 9)
        ctx.timer_service().register_event_time_timer(timestamp + 10)
        yield count

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield timestamp, self.count.value()


Count = Callable[[Sequence[Rows | WatermarkAt]], list[Any]]


@pytest.fixture
def counted(backend_settings: dict[str, str]) -> Count:
    def count(steps: Sequence[Rows | WatermarkAt]) -> list[Any]:
        harness = OperatorHarness(
            KeyedProcessSpec(_Counting()), keys=[lambda row: "k"], settings=backend_settings
        )
        for step in steps:
            harness.perform(step)
        harness.states.close()
        return harness.output.rows

    return count


def test_rows_of_a_batch_are_accesses_at_their_own_timestamps(counted: Count) -> None:
    # The watermark 112 lies behind the first two accesses by 10 ms and more, but not behind the third.
    together = [Rows(["a"] * 3, timestamps=[100, 101, 103]), WatermarkAt(112)]
    one_by_one = [
        *(Rows(["a"], timestamps=[timestamp]) for timestamp in (100, 101, 103)),
        WatermarkAt(112),
    ]
    assert counted(together) == counted(one_by_one)
    assert counted([*together, Rows(["a"], timestamps=[114])])[-1] == 4
    assert counted([*together, WatermarkAt(113), Rows(["a"], timestamps=[114])])[-1] == 1


def test_a_timer_finds_what_lives_at_its_time_however_far_the_watermark_leaps(
    counted: Count,
) -> None:
    fired = [(109, 1), (110, None)]
    by_steps = [WatermarkAt(one) for one in range(100, 121)]
    assert counted([Rows(["a"], timestamps=[100]), *by_steps])[1:] == fired
    assert counted([Rows(["a"], timestamps=[100]), WatermarkAt(5_000)])[1:] == fired


class _Seen(MapFunction):
    """Says whether the key was there within its time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("seen", Types.BOOLEAN())
        descriptor.enable_time_to_live(ttl().build())
        self.seen = runtime_context.get_state(descriptor)

    def map(self, value: Any) -> bool:
        was_seen = bool(self.seen.value())
        self.seen.update(True)
        return was_seen


def test_functions_of_one_record_have_event_time_too(backend_settings: dict[str, str]) -> None:
    harness = OperatorHarness(MapSpec(_Seen()), keys=[lambda row: "k"], settings=backend_settings)
    harness.perform(WatermarkAt(94))
    harness.perform(Rows([1, 1], timestamps=[100, 104]))
    harness.perform(WatermarkAt(113))
    harness.perform(Rows([1], timestamps=[115]))
    harness.perform(WatermarkAt(125))
    harness.perform(Rows([1], timestamps=[126]))
    harness.states.close()
    assert harness.output.rows == [False, True, True, False]


def _lasting_count() -> ValueStateDescriptor:
    descriptor = ValueStateDescriptor("lasting", Types.LONG())
    descriptor.enable_time_to_live(ttl().build())
    return descriptor


def _counted_on(state: Any) -> int:
    count = (state.value() or 0) + 1
    state.update(count)
    return count


class _AskingLate(KeyedProcessFunction, MapFunction):
    """Counts in a state that is asked for while a record is handled."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.runtime_context = runtime_context

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield self.map(value)

    def map(self, value: Any) -> int:
        return _counted_on(self.runtime_context.get_state(_lasting_count()))


class _CountingTrigger(Trigger[Any, Any]):
    """Fires for the second record of a window within its time."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        count = _counted_on(ctx.get_partitioned_state(_lasting_count()))
        return TriggerResult.FIRE if count == 2 else TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Any, ctx: Any) -> None:
        raise AssertionError("global windows do not merge")

    def clear(self, window: Any, ctx: Any) -> None:
        pass


class _Sizes(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield len(list(elements))

    def clear(self, context: Any) -> None:
        pass


class _CountingWindows(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield _counted_on(context.global_state().get_state(_lasting_count()))

    def clear(self, context: Any) -> None:
        pass


def _global_windows(trigger: Trigger[Any, Any], function: Any) -> OperatorSpec:
    assigner: Any = GlobalWindows.create()
    return window_spec(assigner, trigger=trigger, window_function=function)


ASKING_LATE: Any = {
    "process": (lambda: KeyedProcessSpec(_AskingLate()), [1, 2, 1]),
    "map": (lambda: MapSpec(_AskingLate()), [1, 2, 1]),
    "trigger": (lambda: _global_windows(_CountingTrigger(), _Sizes()), [2]),
    "window": (lambda: _global_windows(CountTrigger.of(1), _CountingWindows()), [1, 2, 1]),
}


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("where", ASKING_LATE)
def test_a_state_asked_for_within_a_batch_is_accessed_at_its_record_too(
    where: str, is_restarted: bool, backend_settings: dict[str, str]
) -> None:
    spec, wanted = ASKING_LATE[where]
    harness = OperatorHarness(spec(), keys=[lambda row: row[0]], settings=backend_settings)
    harness.perform(WatermarkAt(100))
    harness.perform(Rows([("k", 1)], timestamps=[115]))
    if is_restarted:
        restart(harness)
    harness.perform(WatermarkAt(112))
    harness.perform(Rows([("k", 2)], timestamps=[116]))
    if is_restarted:
        restart(harness)
    harness.perform(WatermarkAt(126))
    harness.perform(Rows([("k", 3)], timestamps=[127]))
    harness.states.close()
    assert harness.output.rows == wanted


def restart(harness: OperatorHarness) -> None:
    """Go on from a snapshot, as after a failure."""
    taken = harness.snapshot()
    harness.states.close()
    harness.restart(taken)


def test_a_restored_operator_goes_on_in_event_time(backend_settings: dict[str, str]) -> None:
    harness = OperatorHarness(
        KeyedProcessSpec(_Counting()), keys=[lambda row: "k"], settings=backend_settings
    )
    harness.perform(Rows(["a"], timestamps=[100]))
    harness.perform(WatermarkAt(105))
    restart(harness)
    harness.perform(Rows(["a"], timestamps=[106]))
    assert harness.output.rows[-1] == 2
    restart(harness)
    harness.perform(WatermarkAt(116))
    harness.perform(Rows(["a"], timestamps=[117]))
    assert harness.output.rows[-1] == 1
    harness.states.close()
