"""Timers: order, duplicates, deletion, registration from callbacks, both clocks; against a list-based model."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.clock import ManualClock
from headrace.functions.process import TimeDomain
from headrace.operators.timers import InternalTimerService, TimerQueue
from headrace.state.heap import HeapKeyedStateBackend
from headrace.testing.operator_harness import ManualTimers

EVENT, CLOCK = TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME


class _Service:
    def __init__(self, start_ms: int = 0) -> None:
        self.backend = HeapKeyedStateBackend()
        self.clock = ManualTimers(ManualClock(start_ms))
        self.fired: list[tuple[str, int, Any, Any]] = []
        self.timers = InternalTimerService(self.backend, self.clock, self._on_event, self._on_clock)

    def _on_event(self, time_ms: int, key: Any, namespace: Any) -> None:
        assert self.backend.key_scope.entry == key
        self.fired.append(("event", time_ms, key, namespace))

    def _on_clock(self, time_ms: int, key: Any, namespace: Any) -> None:
        self.fired.append(("clock", time_ms, key, self.clock.now_ms()))

    def register(self, domain: TimeDomain, key: Any, *times_ms: int) -> None:
        self.backend.set_current_key(key)
        for time_ms in times_ms:
            self.timers.register(domain, time_ms)


def test_event_timers_fire_in_order_of_time_over_all_keys() -> None:
    service = _Service()
    service.register(EVENT, "a", 5, 20, 5)
    service.register(EVENT, "b", 3, 5)
    service.timers.advance_watermark(10)
    assert service.fired == [
        ("event", 3, "b", None),
        ("event", 5, "a", None),
        ("event", 5, "b", None),
    ]
    assert service.timers.timer_count(EVENT) == 1


def test_a_timer_in_the_past_waits_for_the_next_watermark() -> None:
    service = _Service()
    service.timers.advance_watermark(10)
    service.register(EVENT, "a", 7)
    assert service.fired == []
    service.timers.advance_watermark(11)
    assert service.fired == [("event", 7, "a", None)]


def test_a_deleted_timer_does_not_fire_and_deleting_none_is_fine() -> None:
    service = _Service()
    service.register(EVENT, "a", 5)
    service.register(CLOCK, "a", 5)
    service.timers.delete(EVENT, 5)
    service.timers.delete(EVENT, 6)
    service.timers.delete(CLOCK, 5)
    service.timers.advance_watermark(10)
    service.clock.advance_to(10)
    assert service.fired == []


def test_clock_timers_fire_once_their_millisecond_is_over() -> None:
    service = _Service(start_ms=100)
    service.register(CLOCK, "a", 110, 105)
    service.register(CLOCK, "b", 110)
    service.clock.advance_to(105)
    assert service.fired == []
    service.clock.advance_to(200)
    assert service.fired == [
        ("clock", 105, "a", 106),
        ("clock", 110, "a", 111),
        ("clock", 110, "b", 111),
    ]


def test_a_clock_timer_in_the_past_fires_at_once() -> None:
    service = _Service(start_ms=100)
    service.register(CLOCK, "a", 50)
    service.clock.advance_to(100)
    assert service.fired == [("clock", 50, "a", 100)]


def test_timers_that_callbacks_register_or_delete_take_part_at_once() -> None:
    queue = TimerQueue()
    fired: list[tuple[int, str]] = []

    def fire(time_ms: int, key: Any, namespace: Any) -> None:
        fired.append((time_ms, key))
        if (time_ms, key) == (5, "a"):
            queue.register(2, "past", None)
            queue.register(5, "a", None) if len(fired) < 3 else None
            queue.register(7, "later", None)
            queue.register(11, "too late", None)
            queue.delete(5, "b", None)

    for key in "abc":
        queue.register(5, key, None)
    queue.fire_until(10, fire)
    assert fired == [(5, "a"), (2, "past"), (5, "c"), (5, "a"), (2, "past"), (7, "later")]
    assert len(queue) == 1


def test_a_timer_moved_with_every_record_leaves_nothing_behind() -> None:
    queue = TimerQueue()
    for time_ms in range(10_000):
        queue.register(time_ms, "key", None)
        queue.delete(time_ms - 1, "key", None)
    assert len(queue) == 1
    assert len(queue._times) < 200


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.integers(0, 20), st.sampled_from("abc")),
        st.tuples(st.just("delete"), st.integers(0, 20), st.sampled_from("abc")),
        st.tuples(st.just("fire"), st.integers(0, 20), st.just("")),
    )
)


@given(
    OPERATIONS,
    st.dictionaries(st.tuples(st.integers(0, 20), st.sampled_from("abc")), st.integers(0, 25)),
)
def test_the_queue_behaves_as_a_sorted_list(
    operations: list[tuple[str, int, str]], reactions: dict[tuple[int, str], int]
) -> None:
    queue, model = TimerQueue(), set[tuple[int, str]]()
    for name, time_ms, key in operations:
        if name == "register":
            queue.register(time_ms, key, None)
            model.add((time_ms, key))
        elif name == "delete":
            queue.delete(time_ms, key, None)
            model.discard((time_ms, key))
        else:
            fired: list[tuple[int, str]] = []
            left = dict(reactions)

            def fire(time_ms: int, key: Any, _: Any, fired: Any = fired, left: Any = left) -> None:
                # The model: always the earliest of all timers, whichever key.
                assert time_ms == min(model)[0]
                model.remove((time_ms, key))
                fired.append((time_ms, key))
                reaction = left.pop((time_ms, key), None)
                if reaction is not None:
                    queue.register(reaction, key, None)
                    model.add((reaction, key))

            queue.fire_until(time_ms, fire)
            assert not any(timer[0] <= time_ms for timer in model)
    assert len(queue) == len(model)


def test_a_timer_that_an_earlier_one_of_its_time_deletes_does_not_fire() -> None:
    queue = TimerQueue()
    for key in ("a", "b", "c"):
        queue.register(5, key, None)
    fired: list[str] = []

    def fire(time_ms: int, key: str, namespace: None) -> None:
        fired.append(key)
        queue.delete(5, "b", None)

    queue.fire_until(5, fire)
    assert fired == ["a", "c"]
    assert len(queue) == 0


@given(
    st.lists(
        st.tuples(st.sampled_from("rdfwx"), st.integers(0, 5), st.sampled_from("ab")), max_size=40
    )
)
def test_a_frozen_queue_keeps_what_it_had(steps: list[tuple[str, int, str]]) -> None:
    queue, model = TimerQueue(), set[tuple[int, str]]()
    views: list[tuple[Any, set[tuple[int, str]]]] = []
    for step, time_ms, key in steps:
        match step:
            case "r":
                queue.register(time_ms, key, None)
                model.add((time_ms, key))
            case "d":
                queue.delete(time_ms, key, None)
                model.discard((time_ms, key))
            case "f":
                queue.fire_until(time_ms, lambda *_: None)
                model = {timer for timer in model if timer[0] > time_ms}
            case "w":
                views.append((queue.freeze(), set(model)))
            case _:
                if views:
                    views.pop(time_ms % len(views))[0].release()
        assert len(queue) == len(model)
        for view, wanted in views:
            assert {(time, key) for time, key, _ in view} == wanted
