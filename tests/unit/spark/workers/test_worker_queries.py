"""TaskManagers become queries of Spark's: when each is asked, what is posted of it, and when its query ends."""

from collections.abc import Mapping
from typing import Any

from headrace.core.clock import ManualClock
from headrace.core.ids import ResourceId
from headrace.gateways.errors import UnknownTaskManagerError
from headrace.spark.workers.worker_queries import LAST_LOOKS_MS, LOOK_INTERVAL_S, WorkerQueries

FIRST, SECOND = ResourceId("tm-1"), ResourceId("tm-2")


class Posted:
    """What Spark's listeners would hear."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def begin(self, description: str) -> str:
        self.events.append(("begin", description))
        return description

    def add(self, query: str, figures: Mapping[str, int]) -> None:
        self.events.append((query, dict(figures)))

    def end(self, query: str) -> None:
        self.events.append(("end", query))

    def taken(self) -> list[Any]:
        events, self.events = self.events, []
        return events


class World:
    """A cluster of which the TaskManagers and their metrics are written down."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.posted = Posted()
        self.there: dict[ResourceId, dict[str, float]] = {}
        self.answer_ms = 0.0
        self.queries = WorkerQueries(
            self.posted,
            lambda: tuple(self.there),
            self._metrics_of,
            lambda worker_id: f"TaskManager {worker_id}",
            self.clock,
        )

    def _metrics_of(self, worker_id: ResourceId) -> dict[str, float]:
        self.clock.advance_ms(self.answer_ms)
        if not (metrics := self.there[worker_id]):
            raise UnknownTaskManagerError(worker_id)
        return metrics

    def look_after(self, duration_s: float) -> list[Any]:
        self.clock.advance_ms(1_000 * duration_s)
        self.queries.look()
        return self.posted.taken()


def metrics(records: int, processor_s: float = 0.0) -> dict[str, float]:
    return {
        "Status.Headrace.Tasks.Running": 2.0,
        "Status.Headrace.Tasks.NumRecordsIn": float(records),
        "Status.Headrace.Tasks.NumRecordsOut": float(2 * records),
        "Status.JVM.CPU.Time": processor_s * 1e9,
        "Status.JVM.Memory.Heap.Used": 7.0 * (1 << 20),
    }


def figures(records: int, processor_ms: int = 0) -> dict[str, int]:
    return {
        "records received": records,
        "records sent": 2 * records,
        "processor time in ms": processor_ms,
        "running tasks": 2,
        "resident memory in MiB": 7,
    }


def test_what_came_since_the_last_look_is_posted_and_readings_as_they_are() -> None:
    world = World()
    world.there[FIRST] = metrics(10, 0.25)
    name = "TaskManager tm-1"
    assert world.look_after(5) == [("begin", name), (name, figures(10, 250))]
    world.there[FIRST] = metrics(15, 0.75)
    assert world.look_after(5) == [(name, figures(5, 500))]


def test_a_task_manager_that_went_ends_its_query_and_the_others_go_on() -> None:
    world = World()
    world.there |= {FIRST: metrics(1), SECOND: metrics(1)}
    world.look_after(5)
    del world.there[FIRST]
    assert world.look_after(5) == [("end", "TaskManager tm-1"), ("TaskManager tm-2", figures(0))]


def test_one_that_does_not_answer_is_asked_again() -> None:
    world = World()
    world.there[FIRST] = {}
    assert world.look_after(5) == [("begin", "TaskManager tm-1")]
    world.there[FIRST] = metrics(10)
    assert world.look_after(5) == [("TaskManager tm-1", figures(10))]


def test_the_older_one_is_the_less_often_it_is_asked() -> None:
    world = World()
    world.there[FIRST] = metrics(0)
    day = int(24 * 3600 / LOOK_INTERVAL_S)
    posted = [len(world.look_after(LOOK_INTERVAL_S)) for _ in range(day)]
    first_minutes = int(300 / LOOK_INTERVAL_S)
    assert posted[:first_minutes] == [2, *[1] * (first_minutes - 1)]
    assert 300 < sum(posted) < 450, "Spark keeps each of them while the TaskManager lives"
    last_hour = posted[-int(3600 / LOOK_INTERVAL_S) :]
    assert 2 <= sum(last_hour) <= 4


def test_at_the_end_the_last_figures_are_posted_as_long_as_there_is_time() -> None:
    world = World()
    world.there |= {FIRST: metrics(1), SECOND: metrics(1)}
    world.look_after(5)
    world.there |= {FIRST: metrics(3), SECOND: metrics(3)}
    world.answer_ms = LAST_LOOKS_MS
    world.queries.end()
    assert world.posted.taken() == [
        ("TaskManager tm-1", figures(2)),
        ("end", "TaskManager tm-1"),
        ("end", "TaskManager tm-2"),
    ]
    world.queries.end()
    assert world.posted.taken() == []
