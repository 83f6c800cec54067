"""The metrics of a task with its operators apart; and those that are measured as somebody reads them."""

from collections.abc import Callable, Iterator

import pytest

from headrace import StreamExecutionEnvironment, Types
from headrace.core.clock import ManualClock
from headrace.datastream import KeyedProcessFunction, OutputTag, ProcessFunction
from headrace.functions.record import MapFunction
from headrace.functions.runtime_context import RuntimeContext
from headrace.metrics.groups import MetricSample
from headrace.metrics.instruments import Histogram
from headrace.task.metrics import MailboxLatency
from headrace.task.task import Task
from tests.unit.task.local_job import LocalJob

LATE = OutputTag("late", Types.LONG())
Values = dict[str, float]


class Renaming(MapFunction):
    """Counts under a name of the runtime's, and in a group with a point in its name."""

    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self._own = group.counter("numRecordsIn")
        self._seen = group.add_group("a.b").counter("seen")

    def map(self, value: int) -> int:
        self._own.inc(100)
        self._seen.inc()
        return value


class Waking(KeyedProcessFunction):
    """Sets a timer for each value of each key."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> list[int]:
        ctx.timer_service().register_event_time_timer(value)
        return []

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[int]:
        return [timestamp]


class Splitting(ProcessFunction):
    """Sends even numbers to a side."""

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[object]:
        if value % 2:
            yield value
        else:
            yield LATE, value


def program(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(1)
    numbers = env.from_collection([1, 2, 3, 4, 5], type_info=Types.LONG()).name("numbers")
    split = numbers.process(Splitting(), output_type=Types.LONG()).name("split")
    renamed = split.map(Renaming(), output_type=Types.LONG()).name("renamed")
    renamed.filter(lambda value: value > 1).name("kept").print().name("odd")
    split.get_side_output(LATE).map(lambda value: value, output_type=Types.LONG()).name("late")


@pytest.fixture(scope="module")
def task() -> Iterator[Task]:
    """The only task of a program that has ended."""
    env = StreamExecutionEnvironment.get_execution_environment()
    program(env)
    with LocalJob(env.get_stream_graph()) as job:
        job.run()
        (task,) = job.tasks
        yield task


def by_operator(task: Task) -> dict[str, list[MetricSample]]:
    names = {each.operator_id: each.name for each in task._environment.vertex.operators}
    return {names[key]: list(found) for key, found in task.metric_samples().operators.items()}


def values(samples: list[MetricSample]) -> Values:
    return {sample.name: sample.value for sample in samples}


def test_each_operator_has_the_rows_that_go_in_and_come_out(task: Task) -> None:
    found = {name: values(samples) for name, samples in by_operator(task).items()}
    rows = {
        name: (each.get("numRecordsIn"), each["numRecordsOut"])
        for name, each in found.items()
        if name != "renamed"
    }
    assert rows["Source: numbers"] == (5, 5)
    assert rows["split"] == (5, 3)
    assert rows["kept"] == (3, 2)


def test_of_an_operator_behind_a_side_output_only_what_comes_out_is_known(task: Task) -> None:
    late = values(by_operator(task)["late"])
    assert "numRecordsIn" not in late and late["numRecordsOut"] == 2


def test_a_metric_of_the_user_wins_over_one_of_the_runtime_with_its_name(task: Task) -> None:
    assert values(by_operator(task)["renamed"])["numRecordsIn"] == 300
    assert task.metrics_snapshot()["renamed.numRecordsIn"] == 300


def test_counters_of_the_user_are_told_apart_from_all_other_metrics(task: Task) -> None:
    assert task.user_counters() == ("renamed.a_b.seen",)
    assert task.metrics_snapshot()["renamed.a_b.seen"] == 3


def test_groups_of_users_keep_their_names(task: Task) -> None:
    (seen,) = (one for one in by_operator(task)["renamed"] if one.name == "seen")
    assert (seen.path, seen.keys, seen.value) == (("a.b",), ("a.b",), 3)


def test_watermarks_are_known_of_each_operator_and_a_source_has_none_that_goes_in(
    task: Task,
) -> None:
    found = by_operator(task)
    assert "currentInputWatermark" not in values(found["Source: numbers"])
    kept = values(found["kept"])
    assert kept["currentInputWatermark"] == kept["currentOutputWatermark"] == 2**63 - 1


def test_timers_are_counted_of_each_operator_that_has_some() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_collection([1, 2, 3, 3], type_info=Types.LONG())
    keyed = numbers.key_by(lambda value: 0, key_type=Types.LONG())
    keyed.process(Waking(), output_type=Types.LONG()).name("waking").print()
    with LocalJob(env.get_stream_graph()) as job:
        job.run()
        found = [by_operator(task) for task in job.tasks]
    fired = {
        name: values(samples)["numFiredTimers"]
        for each in found
        for name, samples in each.items()
        if "numFiredTimers" in values(samples)
    }
    assert fired == {"waking": 3}
    own = [values(list(task.metric_samples().own)).get("numFiredTimers") for task in job.tasks]
    assert sorted(own, key=str) == [3, None]


def test_own_samples_are_those_of_the_snapshot(task: Task) -> None:
    own = {sample.name for sample in task.metric_samples().own if not sample.path}
    plain = {name for name in task.metrics_snapshot() if "." not in name}
    assert plain and plain <= own
    assert {"initializationTime", "numRecordsIn", "busyTimeMsPerSecond"} <= own


def test_the_time_of_a_mail_is_measured_once_it_is_run() -> None:
    clock, mails, histogram = ManualClock(), list[Callable[[], None]](), Histogram(3)
    latency = MailboxLatency(clock, mails.append)
    latency.measure(histogram)
    clock.advance_ms(30)
    latency.measure(histogram)
    assert histogram.get_count() == 0 and len(mails) == 1
    mails.pop()()
    latency.measure(histogram)
    mails.pop()()
    assert histogram.snapshot("ms")["ms_max"] == 30
    assert histogram.snapshot("ms")["ms_min"] == 0
