"""A TaskManager that holds more memory than it may is told to end, once and with the figures."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from headrace.cluster.task_executor.memory_limit import MemoryLimit, share_bytes
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.process.process_memory import container_memory_bytes

GB = 1 << 30
LIMIT = {"headrace.taskmanager.memory.limit": "1 gb"}
RESERVE = {"headrace.taskmanager.memory.reserve": "0.05", "taskmanager.memory.process.size": "2 gb"}


@dataclass
class World:
    """An endpoint that looks again when it is told to, and tasks that stop at the look `stops_at`, if ever."""

    settings: Settings
    held: list[int]
    available: list[int] = field(default_factory=list[int])
    stops_at: int | None = 0
    clock: ManualClock = field(default_factory=ManualClock)
    scheduled: list[tuple[float, Callable[[], None]]] = field(
        default_factory=list[tuple[float, Callable[[], None]]]
    )
    columnar_bytes: int = 0
    told: list[str] = field(default_factory=list[str])
    delays: list[float] = field(default_factory=list[float])
    asked_count: int = 0

    def schedule_run_async(self, delay_ms: float, action: Callable[[], None]) -> None:
        self.scheduled.append((delay_ms, action))

    def stop_tasks(self, reason: str) -> bool:
        self.asked_count += 1
        return self.stops_at is None or self.asked_count <= self.stops_at

    def run(self, *, is_own: bool = True) -> list[str]:
        MemoryLimit(
            self.settings,
            self.clock,
            self.schedule_run_async,
            is_own=is_own,
            stop_tasks=self.stop_tasks,
            end=lambda reason: self.told.append(f"end: {reason}"),
            exit_now=lambda reason: self.told.append(f"exit: {reason}"),
            measure=lambda: self.held.pop(0),
            measure_available=lambda: self.available.pop(0) if self.available else 1 << 60,
            measure_states=lambda: self.columnar_bytes,
            describe_states=lambda: "operator 'joining' holds most",
        ).start()
        while self.scheduled and (self.held or self.available or self.asked_count):
            delay_ms, action = self.scheduled.pop()
            self.delays.append(delay_ms)
            self.clock.advance_ms(delay_ms)
            action()
        assert self.held == []
        return self.told


def test_it_is_told_to_end_at_the_first_look_above_the_limit() -> None:
    [told] = World(Settings(LIMIT), [1 << 20, GB, GB + 1]).run()
    assert told.startswith("end: ")
    assert "headrace.taskmanager.memory.limit" in told


@pytest.mark.parametrize(("columnar_bytes", "is_named"), [(GB // 20, False), (GB // 2, True)])
@pytest.mark.parametrize("settings", [LIMIT, RESERVE])
def test_the_cause_names_the_operator_that_holds_most_columns_where_they_are_much(
    settings: dict[str, str], columnar_bytes: int, is_named: bool
) -> None:
    held = [GB + 1] if settings is LIMIT else [2 * GB + 1]
    world = World(Settings(settings), held, [1, 1], columnar_bytes=columnar_bytes)
    [told] = world.run()
    assert ("; operator 'joining' holds most; give the job" in told) == is_named


def test_without_a_limit_and_a_reserve_nobody_looks() -> None:
    assert World(Settings({"headrace.taskmanager.memory.reserve": "0"}), []).run() == []
    assert World(Settings({}), []).run(is_own=False) == []


def test_one_above_its_share_ends_only_when_memory_is_short() -> None:
    reserve = max(256 << 20, container_memory_bytes() // 20)
    available = [64 << 40, 3 * reserve, *[reserve - 1] * 4]
    world = World(Settings(RESERVE), [2 * GB, 2 * GB, 3 * GB], available)
    [told] = world.run()
    assert told.startswith(
        "end: its process holds 3221.2 MB of memory, more than its share of 2147.5 MB"
    )
    assert "headrace.taskmanager.memory.reserve" in told
    assert world.delays == [5_000.0, 50.0, 50.0, 50.0, 50.0], "more often when it is nearly short"


def test_it_looks_again_before_all_cores_together_could_have_taken_what_is_left() -> None:
    reserve = max(256 << 20, container_memory_bytes() // 20)
    taken_in_a_second = 1_000 * (4 << 20) * (os.cpu_count() or 1)
    world = World(Settings(RESERVE), [], [4 * reserve + taken_in_a_second, 4 * reserve, 64 << 40])
    assert world.run() == []
    assert world.delays == pytest.approx([1_000.0, 50.0])


def test_memory_that_is_short_for_a_moment_ends_nobody() -> None:
    reserve = max(256 << 20, container_memory_bytes() // 20)
    assert World(Settings(RESERVE), [], [reserve - 1, reserve, reserve - 1, reserve]).run() == []


def test_tasks_that_do_not_stop_and_take_more_end_with_the_process_at_once() -> None:
    world = World(Settings(LIMIT), [GB + 1, GB + 2, 2 * GB], stops_at=None)
    [told] = world.run()
    assert told.startswith("exit: ")


def test_tasks_that_take_no_more_have_three_seconds_to_stop() -> None:
    patient = World(Settings(LIMIT), [GB + 1] * 19, stops_at=18)
    [told] = patient.run()
    assert told.startswith("end: ")
    stuck = World(Settings(LIMIT), [GB + 1] * 63, stops_at=None)  # a look at first, and 62 more
    [told] = stuck.run()
    assert told.startswith("exit: ")
    assert stuck.clock.monotonic_ms() > 3_000


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ({"taskmanager.memory.process.size": "2 gb"}, 2 * GB),
        ({"headrace.taskmanager.processes-per-host": "4"}, container_memory_bytes() // 4),
        ({}, container_memory_bytes() // 2),
    ],
)
def test_the_share_is_what_is_said_or_a_half(settings: dict[str, str], share: int) -> None:
    assert share_bytes(Settings(settings)) == share
