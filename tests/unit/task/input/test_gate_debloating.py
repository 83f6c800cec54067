"""GateDebloating: each look is at what came since the last one, in the time in which there was something to take."""

from collections.abc import Callable
from typing import Any, cast

from headrace.core.config import Settings
from headrace.network.flow.buffer_debloater import (
    DEBLOAT_ENABLED,
    DEBLOAT_PERIOD,
    DEBLOAT_SAMPLES,
    DEBLOAT_TARGET,
    ROWS_AT_FIRST,
)
from headrace.network.flow.latency_governor import LATENCY_TARGET
from headrace.task.input.gate_debloating import GateDebloating

PERIOD_MS = 200
GROWING_PERIOD_MS = PERIOD_MS // 5


class Timers:
    """Time goes on when the test says so."""

    def __init__(self) -> None:
        self._now_ms = 1_000
        self._due: list[tuple[int, Callable[[int], None]]] = []

    def now_ms(self) -> int:
        return self._now_ms

    def schedule(self, time_ms: int, callback: Callable[[int], None]) -> None:
        self._due.append((time_ms, callback))

    def pass_a_period(self) -> int | None:
        """Return how long it was; None, and a period passes, where nothing is due."""
        if not self._due:
            self._now_ms += PERIOD_MS
            return None
        ((time_ms, callback),), self._due = self._due, []
        elapsed_ms, self._now_ms = time_ms - self._now_ms, time_ms
        callback(time_ms)
        return elapsed_ms


class Gate:
    """Takes in rows of ten bytes, as the test says, and keeps what was wished for."""

    number_of_channels = 2
    capacity_bytes = 10_000_000
    queued_bytes = 500

    def __init__(self) -> None:
        self.records_in = 0
        self.wishes: list[int] = []

    @property
    def bytes_in(self) -> int:
        return 10 * self.records_in

    def limit_in_flight(self, in_flight_rows: int) -> None:
        self.wishes.append(in_flight_rows)


class Task:
    """A task of one gate, whose wishes follow each look alone."""

    def __init__(self, **options: str) -> None:
        settings = Settings(
            {
                DEBLOAT_SAMPLES.key: "1",
                DEBLOAT_PERIOD.key: f"{PERIOD_MS} ms",
                DEBLOAT_TARGET.key: "2 s",
                **options,
            }
        )
        self.gate, self.idle_ms, self._timers = Gate(), 0.0, Timers()
        self.debloating = GateDebloating(
            [cast(Any, self.gate)], settings, cast(Any, self._timers), self.active_ms
        )
        self.debloating.start()

    def active_ms(self) -> float:
        return self._timers.now_ms() - self.idle_ms

    def take_in(self, row_count: int, idle_ms: float = 0.0) -> int | None:
        self.gate.records_in += row_count
        self.idle_ms += idle_ms
        if self.debloating.is_resting:
            self.debloating.resume()
        return self._timers.pass_a_period()


def slow_task(**options: str) -> Task:
    """One that was found to take half a row a ms."""
    task = Task(**options)
    for row_count in (20, 20, 100, 100):
        task.take_in(row_count)
    return task


def test_before_anything_is_known_it_says_so_little_and_looks_often() -> None:
    task = Task()
    assert task.gate.wishes == [ROWS_AT_FIRST]
    assert task.take_in(0) is None
    assert task.take_in(20) == GROWING_PERIOD_MS
    assert task.take_in(100) in (GROWING_PERIOD_MS, PERIOD_MS)


def test_each_look_is_at_what_came_since_the_last_one() -> None:
    task = slow_task()
    del task.gate.wishes[:]
    task.take_in(100)
    assert task.debloating.time_to_consume_ms == 100
    # In half the time, as much: it is twice as fast, and has nothing to take for the rest.
    task.take_in(100, idle_ms=PERIOD_MS / 2)
    assert task.gate.wishes == [1000]


def test_the_time_of_a_batch_that_lasts_over_several_looks_counts_with_the_next_one() -> None:
    task = slow_task()
    del task.gate.wishes[:]
    for _ in range(4):
        task.take_in(0)
    task.take_in(100)
    assert task.gate.wishes == [100]


def test_an_idle_gate_wishes_nothing_new() -> None:
    task = slow_task()
    del task.gate.wishes[:]
    task.gate.queued_bytes = 0
    task.take_in(0, idle_ms=PERIOD_MS)
    task.take_in(100)
    assert task.gate.wishes == []
    assert task.debloating.in_flight_bytes == 5000


def test_nothing_is_due_while_no_rows_come_and_a_look_is_again_once_they_have() -> None:
    task = slow_task()
    del task.gate.wishes[:]
    task.gate.queued_bytes = 0
    assert task.take_in(0) == PERIOD_MS, "the look that finds nothing"
    assert task.take_in(0, idle_ms=PERIOD_MS) is None
    assert task.take_in(0, idle_ms=PERIOD_MS) is None
    # Five times as fast as before, in the time in which there was something.
    assert task.take_in(500) == PERIOD_MS
    assert task.gate.wishes, "it is looked at again, and what came in the rest is no slowness"


def test_a_latency_target_is_the_time_that_what_is_in_flight_may_take() -> None:
    task = slow_task(**{DEBLOAT_ENABLED.key: "false", LATENCY_TARGET.key: "100 ms"})
    assert task.gate.wishes[-1] == 25


def test_without_it_nothing_is_said() -> None:
    task = Task(**{DEBLOAT_ENABLED.key: "false"})
    assert task.gate.wishes == []
    assert task.debloating.in_flight_bytes is None
