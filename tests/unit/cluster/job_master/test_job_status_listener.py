"""JobStatusListener: spans of a job's start and restarts, and what the user is told of them."""

from collections.abc import Iterable

from headrace.cluster.job_master.executions import Execution
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.cluster.job_master.job_notices import JobNotices
from headrace.cluster.job_master.job_status_listener import JobStatusListener
from headrace.core.clock import ManualClock
from headrace.core.lifecycle import ExecutionState
from headrace.gateways.messages import ErrorInfo
from headrace.metrics.readings import Span
from testkit.simulation.virtual_loop import VirtualLoop
from tests.unit.cluster.cluster_samples import JOB, attempt, job_graph, vertex

RUNNING, FINISHED, FAILED = ExecutionState.RUNNING, ExecutionState.FINISHED, ExecutionState.FAILED
DEPLOYING, CANCELED = ExecutionState.DEPLOYING, ExecutionState.CANCELED


class World:
    """A job of two subtasks."""

    def __init__(self, *, reports_spans: bool = True) -> None:
        self.clock = ManualClock(100)
        self.spans: list[Span] = []
        loop = VirtualLoop(self.clock)
        self.notices = JobNotices(
            self.clock, lambda delay_ms, action: loop.call_later(delay_ms / 1000, action)
        )
        self.job = JobStatusListener(
            job_graph((vertex(1, 2),)),
            [attempt(index).execution_vertex_id for index in (0, 1)],
            self.notices,
            self.clock,
            self.spans.append if reports_spans else None,
            None,
        )

    def restart(self, cause: str, restart_count: int) -> None:
        failure = Failure(ErrorInfo("ValueError", cause, "USER", recoverable=True))
        self.job.restarts(failure, 0, restart_count, None)

    def become(self, *states: tuple[int, ExecutionState]) -> None:
        """Change the subtasks' states, 10 ms each."""
        for index, state in states:
            self.clock.advance_ms(10)
            self.job.execution_changed(Execution(attempt(index), state=state))

    @property
    def times(self) -> Iterable[tuple[int, int, object]]:
        return [(span.start_ms, span.end_ms, span.attributes["restart"]) for span in self.spans]


def test_a_start_lasts_until_all_subtasks_run() -> None:
    world = World()
    world.become((0, DEPLOYING), (0, RUNNING), (1, DEPLOYING))
    assert world.spans == []
    world.become((1, RUNNING), (0, FINISHED))
    assert world.times == [(100, 140, 0)]


def test_a_subtask_that_has_finished_meanwhile_counts_as_there() -> None:
    world = World()
    world.become((0, RUNNING), (0, FINISHED), (1, RUNNING))
    assert world.times == [(100, 130, 0)]


def test_a_restart_lasts_from_the_failure_until_all_run_again() -> None:
    world = World()
    world.become((0, RUNNING), (1, RUNNING), (0, FAILED))
    world.restart("ValueError: 7", 1)
    world.become((1, CANCELED), (0, RUNNING))
    assert len(world.spans) == 1
    world.become((1, RUNNING))
    assert world.times == [(100, 120, 0), (130, 160, 1)]
    assert world.spans[1].attributes == {
        "jobId": str(JOB),
        "jobName": "a job",
        "restart": 1,
        "cause": "ValueError: 7",
    }


def test_a_failure_during_a_restart_goes_on_with_it() -> None:
    world = World()
    world.become((0, RUNNING), (1, RUNNING), (0, FAILED))
    world.restart("first", 1)
    world.become((0, DEPLOYING), (0, FAILED))
    world.restart("second", 2)
    world.become((0, RUNNING))
    assert world.times == [(100, 120, 0), (130, 160, 2)]
    assert world.spans[1].attributes["cause"] == "second"


def test_only_the_part_that_failed_is_waited_for() -> None:
    world = World()
    world.become((0, RUNNING), (1, FINISHED), (0, FAILED))
    world.restart("first", 1)
    world.become((0, RUNNING))
    assert world.times == [(100, 120, 0), (130, 140, 1)]


def test_restarts_are_told_where_nobody_reports_spans() -> None:
    world = World(reports_spans=False)
    for number in (1, 2):
        world.become((0, RUNNING), (1, RUNNING), (0, FAILED))
        world.restart("gone", number)
    assert [notice.text for notice in world.notices.shown] == [
        "job 'a job' restarts now from the start (restart 1): gone",
        "job 'a job' restarts now from the start (restart 2): gone",
    ]
    assert world.spans == []
