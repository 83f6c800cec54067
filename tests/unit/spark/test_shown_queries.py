"""TaskManagers and jobs become queries of Spark's: what is posted of them, when, and when their queries end."""

from typing import Any

import pytest

from headrace.core.clock import ManualClock
from headrace.core.ids import JobId, JobVertexId, ResourceId
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.gateways.errors import UnknownTaskManagerError
from headrace.gateways.job_master import JobDetails, SubtaskDetails, VertexDetails
from headrace.gateways.messages import ErrorInfo
from headrace.graph.job_plan import JobPlan, PlanInput, PlanNode
from headrace.spark.shown_queries import (
    LAST_LOOKS_MS,
    LOOK_INTERVAL_S,
    Figures,
    QueryNode,
    ShownQueries,
)

FIRST, SECOND = ResourceId("tm-1"), ResourceId("tm-2")
OF_TASK_MANAGERS = (
    "records received",
    "records sent",
    "processor time in ms",
    "running tasks",
    "resident memory in MiB",
)


class Posted:
    """What Spark's listeners would hear."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def begin(self, root: QueryNode, begun_ms: int) -> str:
        self.events.append(("begin", root, begun_ms))
        return root.description

    def add(self, query: str, figures: Figures) -> None:
        self.events.append((query, {key: dict(numbers) for key, numbers in figures.items()}))

    def end(self, query: str, ended_ms: int, error: str = "") -> None:
        self.events.append(("end", query, ended_ms, *([error] if error else [])))

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
        self.queries = ShownQueries(
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


def posted(worker_id: ResourceId, records: int, processor_ms: int = 0) -> Any:
    figures = {
        "records received": records,
        "records sent": 2 * records,
        "processor time in ms": processor_ms,
        "running tasks": 2,
        "resident memory in MiB": 7,
    }
    return f"TaskManager {worker_id}", {str(worker_id): figures}


def begun(worker_id: ResourceId, begun_ms: int) -> Any:
    node = QueryNode(str(worker_id), "TaskManager", f"TaskManager {worker_id}", OF_TASK_MANAGERS)
    return "begin", node, begun_ms


def test_what_came_since_the_last_look_is_posted_and_readings_as_they_are() -> None:
    world = World()
    world.there[FIRST] = metrics(10, 0.25)
    assert world.look_after(5) == [begun(FIRST, 5_000), posted(FIRST, 10, 250)]
    world.there[FIRST] = metrics(15, 0.75)
    assert world.look_after(5) == [posted(FIRST, 5, 500)]


def test_a_task_manager_that_went_ends_its_query_and_the_others_go_on() -> None:
    world = World()
    world.there |= {FIRST: metrics(1), SECOND: metrics(1)}
    world.look_after(5)
    del world.there[FIRST]
    assert world.look_after(5) == [posted(SECOND, 0)]
    assert world.look_after(5) == [("end", "TaskManager tm-1", 15_000), posted(SECOND, 0)]


def test_one_that_the_next_resource_manager_hears_of_later_counts_once() -> None:
    world = World()
    world.there[FIRST] = metrics(10)
    world.look_after(5)
    del world.there[FIRST]
    assert world.look_after(5) == []
    world.there[FIRST] = metrics(12)
    assert world.look_after(5) == [posted(FIRST, 2)]
    del world.there[FIRST]
    assert world.look_after(5) == []


def test_one_that_does_not_answer_is_asked_again() -> None:
    world = World()
    world.there[FIRST] = {}
    assert world.look_after(5) == [begun(FIRST, 5_000)]
    world.there[FIRST] = metrics(10)
    assert world.look_after(5) == [posted(FIRST, 10)]


def test_the_older_one_is_the_less_often_it_is_asked() -> None:
    world = World()
    world.there[FIRST] = metrics(0)
    counts = [len(world.look_after(LOOK_INTERVAL_S)) for _ in range(24 * 3600 // LOOK_INTERVAL_S)]
    first_minutes = 300 // LOOK_INTERVAL_S
    assert counts[:first_minutes] == [2, *[1] * (first_minutes - 1)]
    assert 300 < sum(counts) < 450, "Spark keeps each of them while the TaskManager lives"
    assert 2 <= sum(counts[-3600 // LOOK_INTERVAL_S :]) <= 4


def test_at_the_end_the_last_figures_are_posted_as_long_as_there_is_time() -> None:
    world = World()
    world.there |= {FIRST: metrics(1), SECOND: metrics(1)}
    world.look_after(5)
    world.there |= {FIRST: metrics(3), SECOND: metrics(3)}
    world.answer_ms = LAST_LOOKS_MS
    world.queries.end()
    assert world.posted.taken() == [
        posted(FIRST, 2),
        ("end", "TaskManager tm-1", 6_000),
        ("end", "TaskManager tm-2", 6_000),
    ]
    world.queries.end()
    assert world.posted.taken() == []


JOB = JobId(b"j" * 16)
SOURCE, LEFT, RIGHT = (JobVertexId(letter * 16) for letter in (b"s", b"l", b"r"))


def node(vertex_id: JobVertexId, name: str, *inputs: JobVertexId) -> PlanNode:
    read = tuple(PlanInput(each, "HASH", "blocking") for each in inputs)
    return PlanNode(vertex_id, name, name, 2, 128, "default", read, ())


def vertex(vertex_id: JobVertexId, name: str, *records: tuple[int, int]) -> VertexDetails:
    subtasks = tuple(
        SubtaskDetails(
            index,
            0,
            ExecutionState.FINISHED,
            None,
            {"numRecordsIn": float(received), "numRecordsOut": float(sent)},
        )
        for index, (received, sent) in enumerate(records)
    )
    return VertexDetails(vertex_id, name, len(records), subtasks)


@pytest.mark.parametrize(
    ("status", "failure", "error"),
    [
        (JobStatus.FINISHED, None, []),
        (JobStatus.CANCELED, None, ["cancelled"]),
        (
            JobStatus.FAILED,
            ErrorInfo("ValueError", "ValueError: 1", "USER", False),
            ["ValueError: 1"],
        ),
    ],
)
def test_a_job_is_a_tree_in_which_each_vertex_counts_once(
    status: JobStatus, failure: ErrorInfo | None, error: list[str]
) -> None:
    world = World()
    plan = JobPlan(
        JOB,
        "wells",
        "BATCH",
        (node(SOURCE, "Source"), node(LEFT, "Left", SOURCE), node(RIGHT, "Right", SOURCE)),
    )
    vertices = (
        vertex(SOURCE, "Source", (0, 3), (0, 4)),
        vertex(LEFT, "Left", (7, 0), (0, 0)),
        vertex(RIGHT, "Right", (4, 0), (3, 0)),
    )
    times = {"INITIALIZING": 1_000, "CREATED": 1_200, status.name: 2_000}
    world.queries.show_job(JobDetails(JOB, "wells", status, times, vertices, failure), plan)
    (_, root, begun_ms), (description, figures), end = world.posted.taken()
    assert (begun_ms, description) == (1_000, "records of BATCH job 'wells' (Source, Left, Right)")
    assert end == ("end", description, 2_000, *error)
    left, right = root.children
    assert (left.name, right.name) == ("Left", "Right")
    assert [one.name for one in (*left.children, *right.children)] == ["Source", "see Source"]
    counted = {one.key for one in (left, right, *left.children) if one.accumulators}
    assert counted == figures.keys()
    assert right.children[0].accumulators == ()
    sums = [tuple(figures[str(one)].values()) for one in (SOURCE, LEFT, RIGHT)]
    assert sums == [(0, 7), (7, 0), (7, 0)]


def test_a_job_that_failed_before_it_began_is_shown_as_far_as_it_is_known() -> None:
    world = World()
    world.clock.advance_ms(3_000)
    failure = ErrorInfo("ProgramError", "ProgramError: no sink", "USER", False)
    details = JobDetails(JOB, "wells", JobStatus.FAILED, {}, (), failure)
    world.queries.show_job(details, JobPlan(JOB, "wells", "STREAMING", ()))
    (_, root, begun_ms), (description, figures), end = world.posted.taken()
    assert (root.children, begun_ms, figures) == ((), 3_000, {})
    assert end == ("end", description, 3_000, "ProgramError: no sink")
