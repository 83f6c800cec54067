"""The timer service: order over all keys, deletion, both clocks. Its queues: tests/unit/state/test_timer_queues.py."""

from typing import Any

from headrace.core.clock import ManualClock
from headrace.functions.process import TimeDomain
from headrace.operators.runtime.internal_timer_service import InternalTimerService
from headrace.state.heap.backend import HeapKeyedStateBackend
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


def test_timers_of_both_clocks_are_counted_as_they_fire() -> None:
    service = _Service()
    service.register(EVENT, "a", 5, 20)
    service.register(CLOCK, "a", 7)
    service.timers.advance_watermark(10)
    assert service.timers.fired_count == 1
    service.clock.advance_to(10)
    assert service.timers.fired_count == len(service.fired) == 2


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
