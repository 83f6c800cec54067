"""JobStatusListener: spans that say how long a job took to start, and to restart."""

from collections.abc import Iterable

from headrace.cluster.job_master.executions import Execution
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.cluster.job_master.job_notices import JobNotices
from headrace.cluster.job_master.job_status_listener import JobStatusListener, ReportSpan
from headrace.core.clock import ManualClock
from headrace.core.lifecycle import ExecutionState
from headrace.gateways.messages import ErrorInfo
from headrace.metrics.readings import Span
from testkit.simulation.virtual_loop import VirtualLoop
from tests.unit.cluster.cluster_samples import JOB, attempt, job_graph, vertex

RUNNING, FINISHED, FAILED = ExecutionState.RUNNING, ExecutionState.FINISHED, ExecutionState.FAILED
DEPLOYING, CANCELED = ExecutionState.DEPLOYING, ExecutionState.CANCELED


def listener(clock: ManualClock, report_span: ReportSpan | None) -> JobStatusListener:
    subtasks = [attempt(index).execution_vertex_id for index in (0, 1)]
    loop = VirtualLoop(clock)
    notices = JobNotices(clock, lambda delay_ms, action: loop.call_later(delay_ms / 1000, action))
    return JobStatusListener(
        job_graph((vertex(1, 2),)), subtasks, notices, clock, report_span, None
    )


def failure(cause: str) -> Failure:
    return Failure(ErrorInfo("ValueError", cause, "USER", recoverable=True))


class World:
    """A job of two subtasks."""

    def __init__(self) -> None:
        self.clock = ManualClock(100)
        self.spans: list[Span] = []
        self.job = listener(self.clock, self.spans.append)

    def restart(self, cause: str, restart_count: int) -> None:
        self.job.restarts(failure(cause), 0, restart_count, None)

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


def test_a_job_whose_spans_nobody_reports_starts_and_restarts() -> None:
    job = listener(ManualClock(), None)
    for number in (1, 2):
        for index in (0, 1):
            job.execution_changed(Execution(attempt(index), state=RUNNING))
        job.restarts(failure("again"), 0, number, None)
