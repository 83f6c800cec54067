"""The life of a task: whatever ends it, and whenever, it has one end state, told last and once."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.api.environment import StreamExecutionEnvironment
from headrace.checkpoint.state_queries import StatesQuery
from headrace.cluster.task_executor.deployment import StreamTaskFactory
from headrace.core.config import Settings
from headrace.core.ids import JobId, OperatorId
from headrace.core.lifecycle import ExecutionState, check_execution_transition
from headrace.core.randomness import SeededRandom
from headrace.core.types.type_info import Types
from headrace.graph.execution_graph import expand
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.graph.stream_graph import StreamGraph
from headrace.metrics.groups import MetricGroup
from headrace.task.chain.queryable_state import StateOutcome, StateRead
from testkit.simulation.cooperative_task_runner import CooperativeTaskRunner
from tests.unit.network.simulated import SimulatedCluster
from tests.unit.task.local_job import LocalJob, RecordingListener

S = ExecutionState
COUNT = 6
STEPS_MAX = 60
END_STEP = 1_000
"""Behind the end of the job."""


def refuse(number: int) -> int:
    raise ValueError("it was to fail")


def numbers(*, fails: bool) -> StreamGraph:
    """Some numbers, and on the other side of an exchange what takes them or fails of them."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    taken = env.from_collection(list(range(COUNT)), type_info=Types.INT()).rebalance()
    taken.map(refuse if fails else abs, output_type=Types.INT()).filter(lambda n: False).print()
    return env.get_stream_graph()


GRAPHS = {fails: numbers(fails=fails) for fails in (False, True)}


class SteppedJob(LocalJob):
    """A job whose tasks do one thing after the other, in virtual time."""

    def __init__(self, stream_graph: StreamGraph, cluster: SimulatedCluster) -> None:
        self.settings = Settings()
        self.random = SeededRandom(7)
        self.listener = RecordingListener()
        self.graph = generate_job_graph(stream_graph, JobId.generate(self.random), self.settings)
        self.execution_graph = expand(self.graph)
        shuffle, self.location = cluster.start("a")
        factory = StreamTaskFactory(
            self.location.resource_id,
            shuffle,
            CooperativeTaskRunner(cluster.loop.schedule),
            self.settings,
            cluster.loop.clock,
            self.random,
            MetricGroup(),
            run_blocking=lambda _, body: body(),
        )
        self.tasks = [
            factory.create(descriptor, self.listener) for descriptor in self._descriptors()
        ]


ENDS: dict[str, Callable[[SteppedJob, int], None]] = {
    "cancel": lambda job, index: job.tasks[index].cancel(),
    "fail": lambda job, index: job.tasks[index].fail_externally(OSError("the host is gone")),
}
EVENTS = st.lists(
    st.tuples(st.integers(0, STEPS_MAX), st.sampled_from(list(ENDS)), st.integers(0, 1)), max_size=4
)


@given(EVENTS, st.booleans())
@example([(5, "fail", 1), (5, "cancel", 1)], False)
@example([(5, "cancel", 1), (5, "fail", 1)], True)
def test_whatever_ends_a_task_it_has_one_end_state_which_is_told_last_and_once(
    events: list[tuple[int, str, int]], fails: bool
) -> None:
    cluster = SimulatedCluster()
    job = SteppedJob(GRAPHS[fails], cluster)
    job.start()
    happened: dict[int, list[str]] = {0: [], 1: []}
    # In the end all are cancelled: one that waits for another is let go of by its master.
    rest = [(END_STEP, "cancel", 0), (END_STEP, "cancel", 1)]
    done = 0
    for step, name, index in sorted(events, key=lambda one: one[0]) + rest:
        while done < step and cluster.loop.step():
            done += 1
        if not job.tasks[index].state.is_terminal:
            happened[index].append(name)
        ENDS[name](job, index)
    cluster.loop.run_all()
    for task in job.tasks:
        told = job.listener.states[task.attempt_id]
        assert [state for state in told if state.is_terminal] == told[-1:] == [task.state]
        for earlier, later in zip([S.SCHEDULED, *told], told, strict=False):
            check_execution_transition(earlier, later)
        if S.CANCELING in told:
            assert told[-1] is S.CANCELED, "a failure that comes after it counts no more"
    end_states = [task.state for task in job.tasks]
    assert len(job.listener.errors) == end_states.count(S.FAILED), "and each has a cause"
    if not any(happened.values()):
        assert end_states == [S.FINISHED, S.FAILED if fails else S.FINISHED]
    job.tasks.clear()
    cluster.environments[0].close()


def test_whoever_reads_state_of_a_task_that_is_ending_is_not_told_to_wait_until_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[StateOutcome] = []
    read = StateRead(OperatorId(b"o" * 16), StatesQuery(), answers.append)
    with LocalJob(GRAPHS[False]) as job:
        task = job.tasks[0]
        close_mailbox = task.mailbox.close

        def close_and_read() -> None:
            close_mailbox()
            assert task.state is ExecutionState.RUNNING
            task.read_state(read)

        monkeypatch.setattr(task.mailbox, "close", close_and_read)
        job.run()
        task.read_state(read)
    assert [str(answer).partition("' ")[2] for answer in answers] == [
        "cannot be read because it is ending: read the job's last checkpoint instead",
        "cannot be read because it is FINISHED: read the job's last checkpoint instead",
    ]
    assert "(1/1)" in str(answers[0])
