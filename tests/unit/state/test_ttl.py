"""Time to live: boundaries, renewal, visibility, sweeping, snapshots; on every kind of state."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.checkpoint.handles import EXPIRED_ROWS
from headrace.core.clock import ManualClock
from headrace.core.types.time_values import Time
from headrace.core.types.type_info import Types
from headrace.functions.process import KeyedProcessFunction
from headrace.functions.specs.operator_specs import KeyedProcessSpec
from headrace.functions.state import ValueStateDescriptor
from headrace.functions.state_ttl import StateTtlConfig
from headrace.testing.operator_harness import OperatorHarness, Rows, WatermarkAt, snapshot
from tests.unit.state.entries import total_entry_count
from tests.unit.state.ttl_states import (
    ALL_KINDS,
    Home,
    elements,
    entries,
    on_backend,
    read,
    ttl,
    value,
    write,
)


@pytest.fixture(params=["hashmap", "rocksdb"], autouse=True)
def chosen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with on_backend(request.param, tmp_path) as backend:
        yield backend


@ALL_KINDS
def test_at_last_access_plus_time_to_live_it_has_expired(describe: Any) -> None:
    home, descriptor = Home(start_ms=100), describe()
    state = home.state(descriptor, ttl())
    write(state, descriptor)
    home.clock.advance_ms(9)
    assert read(state, descriptor) == 1
    home.clock.advance_ms(1)
    assert read(state, descriptor) is None
    assert total_entry_count(home.backend) == 0


@ALL_KINDS
def test_reading_renews_only_where_asked(describe: Any) -> None:
    for builder, wanted in ((ttl(), None), (ttl().update_ttl_on_read_and_write(), 1)):
        home, descriptor = Home(), describe()
        state = home.state(descriptor, builder)
        write(state, descriptor)
        home.clock.advance_ms(6)
        assert read(state, descriptor) == 1
        home.clock.advance_ms(6)
        assert read(state, descriptor) == wanted


@ALL_KINDS
def test_an_expired_value_may_be_seen_once_more_where_asked(describe: Any) -> None:
    home, descriptor = Home(), describe()
    builder = ttl().return_expired_if_not_cleaned_up().disable_cleanup_in_background()
    state = home.state(descriptor, builder)
    write(state, descriptor)
    home.clock.advance_ms(10)
    assert read(state, descriptor) == 1
    assert read(state, descriptor) is None


@ALL_KINDS
def test_a_snapshot_keeps_the_times(describe: Any) -> None:
    home, descriptor = Home(), describe()
    state = home.state(descriptor, ttl())
    write(state, descriptor)
    again = Home(snapshot(home.states), start_ms=9)
    descriptor = describe()
    state = again.state(descriptor, ttl())
    assert read(state, descriptor) == 1
    again.clock.advance_ms(1)
    assert read(state, descriptor) is None


@ALL_KINDS
def test_a_time_to_live_may_be_added_and_taken_away(describe: Any) -> None:
    home, descriptor = Home(), describe()
    write(home.state(descriptor), descriptor)
    with_ttl, descriptor = Home(snapshot(home.states), start_ms=50), describe()
    state = with_ttl.state(descriptor, ttl())
    with_ttl.clock.advance_ms(9)
    assert read(state, descriptor) == 1
    without, descriptor = Home(snapshot(with_ttl.states), start_ms=500), describe()
    assert read(without.state(descriptor), descriptor) == 1


@ALL_KINDS
def test_a_write_after_expiry_begins_anew(describe: Any) -> None:
    home, descriptor = Home(), describe()
    state = home.state(descriptor, ttl().disable_cleanup_in_background())
    write(state, descriptor)
    home.clock.advance_ms(10)
    write(state, descriptor)
    assert read(state, descriptor) == 1


def test_elements_and_entries_expire_one_by_one() -> None:
    home = Home()
    numbers, by_name = home.state(elements(), ttl()), home.state(entries(), ttl())
    numbers.add(1)
    by_name.put("a", 1)
    home.clock.advance_ms(5)
    numbers.add_all([2, 3])
    by_name.put_all({"b": 2})
    home.clock.advance_ms(5)
    assert list(numbers.get()) == [2, 3]
    assert dict(by_name.items()) == {"b": 2}
    assert (by_name.contains("a"), by_name.contains("b")) == (False, True)


def test_reading_a_list_that_reading_renews_takes_out_what_has_expired() -> None:
    home = Home()
    builder = ttl().update_ttl_on_read_and_write().disable_cleanup_in_background()
    state = home.state(elements(), builder)
    state.add(1)
    home.clock.advance_ms(5)
    state.add(2)
    home.clock.advance_ms(5)
    assert list(state.get()) == [2]
    (chunk,) = snapshot(home.states).chunks
    assert chunk.row_count == 1
    home.clock.advance_ms(9)
    assert list(state.get()) == [2]


@ALL_KINDS
def test_what_lives_longer_than_time_lasts_never_expires(describe: Any) -> None:
    home, descriptor = Home(start_ms=2**62), describe()
    state = home.state(descriptor, StateTtlConfig.new_builder(Time.milliseconds(2**63 - 1)))
    write(state, descriptor)
    home.clock.advance_ms(2**61)
    assert read(state, descriptor) == 1


def test_a_timer_does_not_hear_of_state_that_has_expired() -> None:
    """Timers and times to live know nothing of each other: the timer fires, and finds nothing."""
    harness = OperatorHarness(KeyedProcessSpec(_Remembering()), keys=[lambda row: "k"])
    CLOCK.clock = harness.clock
    harness.perform(Rows([7]))
    harness.clock.advance_ms(20)
    harness.perform(WatermarkAt(100))
    assert harness.output.rows == [None]


def test_accesses_sweep_away_what_nobody_asks_for(chosen: str) -> None:
    home = Home()
    state = home.state(value(), ttl().cleanup_incrementally(5, False))
    for number in range(20):
        home.backend.set_current_key(number)
        state.update(number)
    home.clock.advance_ms(10)
    home.backend.set_current_key("another")
    # RocksDB is walked over from time to time, at accesses that find or write something.
    for _ in range(4 if chosen == "hashmap" else 150):
        state.update(1)
    assert home.backend.key_count("value") == 1


def test_each_record_sweeps_where_asked_and_rocksdb_has_one_way_of_its_own(chosen: str) -> None:
    home = Home()
    state = home.state(value(), ttl().cleanup_incrementally(2, True))
    for number in range(6):
        home.backend.set_current_key(number)
        state.update(number)
    home.clock.advance_ms(10)
    home.backend.begin_batch(3)
    home.backend.end_batch()
    assert home.backend.key_count("value") == (0 if chosen == "hashmap" else 6)


def test_expired_entries_stay_out_of_a_snapshot_where_asked() -> None:
    for builder, wanted in ((ttl(), 2), (ttl().cleanup_full_snapshot(), 1)):
        home = Home()
        state = home.state(elements(), builder.disable_cleanup_in_background())
        state.add(1)
        home.clock.advance_ms(10)
        state.add(2)
        (chunk,) = snapshot(home.states).chunks
        assert chunk.row_count == wanted


@ALL_KINDS
def test_a_snapshot_counts_what_has_expired_and_is_still_kept(describe: Any) -> None:
    home, descriptor = Home(), describe()
    state = home.state(descriptor, ttl().disable_cleanup_in_background())
    for key in ("k", "l", "m"):
        home.backend.set_current_key(key)
        write(state, descriptor)
        home.clock.advance_ms(5)
    assert [_expired_rows(home), _expired_rows(home)] == [2, 2]
    home.backend.set_current_key("l")
    assert read(state, descriptor) is None
    assert _expired_rows(home) == 1


def test_cleaning_up_takes_the_expired_rows_out_of_the_next_snapshot(chosen: str) -> None:
    home = Home()
    state = home.state(value(), ttl())
    for number in range(20):
        home.backend.set_current_key(number)
        state.update(number)
    home.clock.advance_ms(10)
    before = snapshot(home.states)
    assert [chunk.attributes[EXPIRED_ROWS] for chunk in before.chunks] == ["20"]
    home.backend.set_current_key("another")
    for _ in range(8 if chosen == "hashmap" else 150):
        state.update(1)
    (chunk,) = snapshot(home.states).chunks
    assert (chunk.row_count, EXPIRED_ROWS in chunk.attributes) == (1, False)
    (unasked,) = snapshot(Home(before).states).chunks
    assert (unasked.row_count, EXPIRED_ROWS in unasked.attributes) == (20, False)


def _expired_rows(home: Home) -> int:
    chunks = snapshot(home.states).chunks
    return sum(int(chunk.attributes.get(EXPIRED_ROWS, "0")) for chunk in chunks)


class _FirstSeen(KeyedProcessFunction):
    """Emits whether the key is new, while every look at it takes three ms."""

    def open(self, runtime_context: Any) -> None:
        descriptor = ValueStateDescriptor("seen", Types.LONG())
        descriptor.enable_time_to_live(ttl().build())
        self.seen = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        is_new = self.seen.value() is None
        CLOCK.clock.advance_ms(3)
        if is_new:
            self.seen.update(value)
        yield is_new


class _Remembering(KeyedProcessFunction):
    """Emits at a timer what it remembers of its key."""

    def open(self, runtime_context: Any) -> None:
        descriptor = ValueStateDescriptor("seen", Types.LONG())
        descriptor.enable_time_to_live(ttl().build())
        self.seen = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> None:
        self.seen.update(value)
        ctx.timer_service().register_event_time_timer(50)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield self.seen.value()


class _ClockOfTheTest:
    clock: ManualClock


CLOCK = _ClockOfTheTest()


def test_all_rows_of_a_batch_see_one_time() -> None:
    harness = OperatorHarness(KeyedProcessSpec(_FirstSeen()), keys=[lambda row: "k"])
    CLOCK.clock = harness.clock
    harness.perform(Rows([1] * 8))
    assert harness.output.rows == [True] + [False] * 7
    harness.perform(Rows([1]))
    assert harness.output.rows[-1] is True
