"""Whole jobs on real tasks and local channels, in one process without a cluster."""

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.core.errors import UserCodeError
from headrace.core.lifecycle import ExecutionState
from headrace.core.types.type_info import Types
from headrace.functions.process import KeyedCoProcessFunction, KeyedProcessFunction, OutputTag
from headrace.functions.record import MapFunction
from headrace.functions.state import ValueStateDescriptor
from tests.unit.task import local_job
from tests.unit.task.local_job import LocalJob

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def environment(parallelism: int = 2) -> StreamExecutionEnvironment:
    made = StreamExecutionEnvironment.get_execution_environment()
    made.set_parallelism(parallelism)
    return made


def test_a_chain_of_per_record_functions(capfd: pytest.CaptureFixture[str]) -> None:
    env = environment(1)
    numbers = env.from_collection([1, 2, 3, 4], type_info=Types.LONG())
    numbers.map(lambda n: n * 10, output_type=Types.LONG()).filter(lambda n: n > 10).flat_map(
        lambda n: [n, n + 1], output_type=Types.LONG()
    ).print()
    with LocalJob(env.get_stream_graph()) as job:
        assert len(job.graph.vertices) == 1
        job.run()
        assert job.final_states() == {ExecutionState.FINISHED}
    assert capfd.readouterr().out.split() == ["20", "21", "30", "31", "40", "41"]


def test_a_keyed_sum_over_a_shuffle(capfd: pytest.CaptureFixture[str]) -> None:
    env = environment(2)
    rows = [("a", 1), ("b", 5), ("a", 2), ("b", 6), ("a", 3)]
    env.from_collection(rows, type_info=PAIR).key_by(lambda v: v[0], key_type=Types.STRING()).sum(
        1
    ).print()
    with LocalJob(env.get_stream_graph()) as job:
        job.run()
    lines = [line.split("> ")[1] for line in capfd.readouterr().out.splitlines()]
    assert sorted(lines) == ["(a,1)", "(a,3)", "(a,6)", "(b,11)", "(b,5)"]


def test_tasks_wait_for_no_checkpoint_at_their_end_where_none_follows_the_first_that_finishes(
    capfd: pytest.CaptureFixture[str],
) -> None:
    env = environment(2)
    env.from_collection([1, 2, 3], type_info=Types.LONG()).rebalance().print()
    settings = {
        "execution.checkpointing.interval": "1h",
        "execution.checkpointing.checkpoints-after-tasks-finish": "false",
    }
    with LocalJob(env.get_stream_graph(), settings) as job:
        job.run()
        assert job.final_states() == {ExecutionState.FINISHED}
    assert len(capfd.readouterr().out.splitlines()) == 3


class Lifecycle(MapFunction):
    """Tells what was called; fails on a negative record."""

    calls: list[str] = []  # noqa: RUF012  # shared with the test, which cannot reach the shipped instance

    def open(self, runtime_context):
        Lifecycle.calls.append("open")

    def map(self, value):
        if value < 0:
            raise ValueError("negative")
        Lifecycle.calls.append(f"map {value}")
        return value

    def close(self):
        Lifecycle.calls.append("close")


class EndlessTimer(KeyedProcessFunction):
    """Gives side results without end for a timer; nobody reads them."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(1)

    def on_timer(self, timestamp, ctx):
        while True:
            local_job.STARTED.set()
            yield OutputTag("unread"), timestamp


class LastPerKey(KeyedProcessFunction):
    """Emits each key's last value when event time ends."""

    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, value, ctx):
        self.last.update(value[1])
        ctx.timer_service().register_event_time_timer(2**62)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), self.last.value()


def test_timers_fire_at_the_end_of_event_time(capfd: pytest.CaptureFixture[str]) -> None:
    env = environment(2)
    rows = [(f"k{i % 3}", i) for i in range(30)]
    env.from_collection(rows, type_info=PAIR).key_by(
        lambda v: v[0], key_type=Types.STRING()
    ).process(LastPerKey(), output_type=PAIR).print()
    with LocalJob(env.get_stream_graph()) as job:
        job.run()
    lines = [line.split("> ")[1] for line in capfd.readouterr().out.splitlines()]
    assert sorted(lines) == ["(k0,27)", "(k1,28)", "(k2,29)"]


class Both(KeyedCoProcessFunction):
    """Emits when a key was seen on both inputs."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.STRING()))

    def process_element1(self, value, ctx):
        yield from self._see("left", ctx)

    def process_element2(self, value, ctx):
        yield from self._see("right", ctx)

    def _see(self, side, ctx):
        other = self.seen.value()
        self.seen.update(side)
        if other is not None and other != side:
            yield ctx.get_current_key()


def test_two_inputs_share_state_by_key(capfd: pytest.CaptureFixture[str]) -> None:
    env = environment(2)
    left = env.from_collection([("a", 1), ("b", 2)], type_info=PAIR)
    right = env.from_collection([("b", 3), ("c", 4)], type_info=PAIR)
    left.connect(right).key_by(lambda v: v[0], lambda v: v[0], key_type=Types.STRING()).process(
        Both(), output_type=Types.STRING()
    ).print()
    with LocalJob(env.get_stream_graph()) as job:
        job.run()
    assert [line.split("> ")[1] for line in capfd.readouterr().out.splitlines()] == ["b"]


def test_a_union_reads_every_stream(capfd: pytest.CaptureFixture[str]) -> None:
    env = environment(1)
    one = env.from_collection([1, 2], type_info=Types.LONG())
    two = env.from_collection([3], type_info=Types.LONG())
    one.union(two).map(lambda n: n, output_type=Types.LONG()).print()
    with LocalJob(env.get_stream_graph()) as job:
        job.run()
    assert sorted(capfd.readouterr().out.split()) == ["1", "2", "3"]


def test_an_error_in_user_code_names_operator_file_and_line() -> None:
    env = environment(1)

    def explode(value):
        raise ValueError(f"cannot take {value}")

    env.from_collection([1], type_info=Types.LONG()).map(explode).name("Exploding").print()
    with LocalJob(env.get_stream_graph()) as job, pytest.raises(UserCodeError) as raised:
        job.run()
    first_line = str(raised.value).splitlines()[0]
    assert first_line.startswith("ValueError: cannot take 1 (in operator 'Exploding', ")
    assert "test_stream_task.py, line" in first_line


def test_a_record_that_does_not_fit_is_blamed_on_the_operator_that_made_it() -> None:
    env = environment(1)
    env.from_collection([1], type_info=Types.LONG()).map(
        lambda n: "text", output_type=Types.LONG()
    ).name("Wrong").rebalance().map(lambda n: n).print()
    with LocalJob(env.get_stream_graph()) as job, pytest.raises(UserCodeError) as raised:
        job.run()
    first_line = str(raised.value).splitlines()[0]
    assert "RecordTypeError" in first_line and "'Wrong'" in first_line
    assert "test_stream_task.py" in first_line


def test_a_cancelled_job_ends_as_cancelled_and_leaves_no_buffer() -> None:
    env = environment(2)
    rows = [("a", i) for i in range(1000)]

    env.from_collection(rows, type_info=PAIR).key_by(lambda v: v[0], key_type=Types.STRING()).sum(
        1
    ).print()
    job = LocalJob(env.get_stream_graph())
    with job:
        for task in job.tasks:
            task.cancel()
        job.start()
        job.listener.await_end(len(job.tasks))
        assert job.final_states() == {ExecutionState.CANCELED}


def test_a_function_that_emits_for_ever_can_be_cancelled(
    capfd: pytest.CaptureFixture[str],
) -> None:
    env = environment(1)

    local_job.STARTED.clear()

    def endless(value):
        # In the module, not in the closure: functions are shipped by value, and this event must be the test's.
        while True:
            local_job.STARTED.set()
            yield value

    env.from_collection([1], type_info=Types.LONG()).flat_map(
        endless, output_type=Types.LONG()
    ).filter(lambda n: n > 1).print()
    with LocalJob(env.get_stream_graph()) as job:
        job.start()
        assert local_job.STARTED.wait(30)
        for task in job.tasks:
            task.cancel()
        job.listener.await_end(len(job.tasks))
        assert job.final_states() == {ExecutionState.CANCELED}
    assert capfd.readouterr().out == ""


def test_a_timer_that_gives_for_ever_can_be_cancelled() -> None:
    local_job.STARTED.clear()
    env = environment(1)
    env.from_collection([("a", 1)], type_info=PAIR).key_by(lambda value: value[0]).process(
        EndlessTimer()
    ).print()
    with LocalJob(env.get_stream_graph()) as job:
        job.start()
        assert local_job.STARTED.wait(30)
        # The source ends by itself, and needs a moment for it.
        job.listener.await_end(1)
        for task in job.tasks:
            task.cancel()
        job.listener.await_end(len(job.tasks))
        assert job.final_states() == {ExecutionState.FINISHED, ExecutionState.CANCELED}


@pytest.mark.parametrize(
    ("records", "state"), [([1, 2], ExecutionState.FINISHED), ([1, 2, -1], ExecutionState.FAILED)]
)
def test_a_function_is_opened_before_its_first_record_and_closed_once_also_after_it_failed(
    records: list[int], state: ExecutionState
) -> None:
    Lifecycle.calls.clear()
    env = environment(1)
    env.from_collection(records, type_info=Types.LONG()).map(Lifecycle()).print()
    with LocalJob(env.get_stream_graph()) as job:
        job.start()
        job.listener.await_end(len(job.tasks))
        assert job.final_states() == {state}
    assert Lifecycle.calls == ["open", "map 1", "map 2", "close"]
