"""GateDebloating: each look is at what came since the last one, in the time in which there was something to take."""

from collections.abc import Callable
from typing import Any, cast

from headrace.core.config import Settings
from headrace.network.debloat import DEBLOAT_ENABLED, DEBLOAT_SAMPLES
from headrace.network.latency_governor import LATENCY_TARGET
from headrace.task.debloating import GateDebloating

PERIOD_MS = 200


class Timers:
    """Time goes on when the test says so."""

    def __init__(self) -> None:
        self._now_ms = 1_000
        self._due: list[tuple[int, Callable[[int], None]]] = []

    def now_ms(self) -> int:
        return self._now_ms

    def schedule(self, time_ms: int, callback: Callable[[int], None]) -> None:
        self._due.append((time_ms, callback))

    def pass_a_period(self) -> None:
        ((time_ms, callback),), self._due = self._due, []
        assert time_ms == self._now_ms + PERIOD_MS
        self._now_ms = time_ms
        callback(time_ms)


class Gate:
    """Takes in what the test says, and keeps what was wished for."""

    number_of_channels = 2
    capacity_bytes = 1_000_000
    queued_bytes = 50_000

    def __init__(self) -> None:
        self.bytes_in = 0
        self.wishes: list[int] = []

    def limit_in_flight(self, in_flight_bytes: int) -> None:
        self.wishes.append(in_flight_bytes)


class Task:
    """A task of one gate, whose wishes follow each look alone."""

    def __init__(self, **options: str) -> None:
        settings = Settings({DEBLOAT_SAMPLES.key: "1", **options})
        self.gate, self.idle_ms, self._timers = Gate(), 0.0, Timers()
        self.debloating = GateDebloating(
            [cast(Any, self.gate)], settings, cast(Any, self._timers), lambda: self.idle_ms
        )
        self.debloating.start()

    def take_in(self, size_bytes: int, idle_ms: float = 0.0) -> None:
        self.gate.bytes_in += size_bytes
        self.idle_ms += idle_ms
        self._timers.pass_a_period()


def test_each_look_is_at_what_came_since_the_last_one() -> None:
    task = Task(**{DEBLOAT_ENABLED.key: "true"})
    for _ in range(3):
        task.take_in(20_000)
    assert task.gate.wishes == [100_000]
    assert task.debloating.time_to_consume_ms == 500
    # In half the time, as much: it is twice as fast, and has nothing to take for the rest.
    task.take_in(20_000, idle_ms=PERIOD_MS / 2)
    assert task.gate.wishes == [100_000, 200_000]
    task.take_in(0, idle_ms=PERIOD_MS)
    task.take_in(40_000)
    assert task.gate.wishes == [100_000, 200_000]
    assert task.debloating.in_flight_bytes == 200_000


def test_a_latency_target_is_the_time_that_what_is_in_flight_may_take() -> None:
    task = Task(**{LATENCY_TARGET.key: "100 ms"})
    task.take_in(20_000)
    assert task.gate.wishes == [10_000]
