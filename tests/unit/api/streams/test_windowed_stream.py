from typing import Any

import pytest

from headrace import OutputTag, StreamExecutionEnvironment, Time, Types, agg
from headrace.api.streams.keyed_stream import KeyedStream
from headrace.api.streams.windowed_stream import AllWindowedStream, WindowedStream
from headrace.core.errors import ProgramError
from headrace.core.record_batch import BatchType
from headrace.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from headrace.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    NeverTrigger,
    TumblingEventTimeWindows,
    WindowStagger,
)
from headrace.functions.specs.operator_specs import ColumnAggregate
from tests.unit.api.recording import RecordingExecutor, plan_nodes, spec_of, types_of

ROW = Types.ROW_NAMED(["origin", "delay"], [Types.STRING(), Types.INT()])
HOUR = TumblingEventTimeWindows.of(Time.hours(1))


class Average(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator + value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


class Contents(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return inputs


class Described(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return elements


class AllContents(AllWindowFunction[Any, Any, Any]):
    def apply(self, window: Any, inputs: Any) -> Any:
        return inputs


def keyed(env: StreamExecutionEnvironment) -> KeyedStream:
    return env.from_collection([("EWR", 1)], ROW).key_by("origin")


def test_a_window_carries_everything_that_was_set(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    late = OutputTag("late", ROW)
    windowed = keyed(env).window(HOUR).trigger(CountTrigger.of(3)).allowed_lateness(500)
    counted = windowed.side_output_late_data(late).process(Described(), Types.INT())
    counted.print()
    counted.get_side_output(late).print()
    env.execute_async()
    spec = spec_of(executor.last, "TumblingEventTimeWindows")
    assert repr(spec.assigner) == "TumblingEventTimeWindows(3600000, 0)"
    assert (spec.allowed_lateness_ms, spec.late_tag_id, spec.is_keyed) == (500, "late", True)
    assert spec.incremental is None and type(spec.window_function).__name__ == "Described"
    types = types_of(executor.last, "TumblingEventTimeWindows")
    assert types.side_outputs == {"late": BatchType(ROW)}


def test_results_are_typed_by_what_makes_them(env: StreamExecutionEnvironment) -> None:
    windowed = keyed(env).window(HOUR)
    assert windowed.reduce(lambda a, b: a).get_type() == ROW
    assert windowed.reduce(lambda a, b: a, Contents()).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert windowed.aggregate(Average(), output_type=Types.INT()).get_type() == Types.INT()
    assert windowed.aggregate(Average(), Contents(), None, Types.INT()).get_type() == Types.INT()
    assert windowed.apply(Contents(), ROW).get_type() == ROW
    assert windowed.get_input_type() == ROW


def test_plans_show_the_window_with_assigner_trigger_and_functions(
    env: StreamExecutionEnvironment,
) -> None:
    keyed(env).window(HOUR).aggregate(Average(), Described()).print()
    node = next(one for one in plan_nodes(env.get_execution_plan()) if "Tumbling" in one["type"])
    assert node["type"] == "TumblingEventTimeWindows"
    assert node["contents"] == (
        "Window(TumblingEventTimeWindows(3600000, 0), EventTimeTrigger, Average, Described)"
    )


def test_an_evictor_is_part_of_the_window_and_of_its_plan(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    keyed(env).window(HOUR).evictor(CountEvictor.of(3)).reduce(lambda a, b: a).print()
    node = next(one for one in plan_nodes(env.get_execution_plan()) if "Tumbling" in one["type"])
    assert "EventTimeTrigger, CountEvictor(3), " in node["contents"]
    env.execute_async()
    spec = spec_of(executor.last, "TumblingEventTimeWindows")
    assert repr(spec.evictor) == "CountEvictor(3)"


def test_lateness_is_milliseconds_or_an_amount_of_time(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    keyed(env).window(HOUR).allowed_lateness(Time.seconds(2)).apply(Contents()).print()
    env.execute_async()
    assert spec_of(executor.last, "TumblingEventTimeWindows").allowed_lateness_ms == 2000


def test_window_all_is_not_parallel(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    everything = keyed(env).window_all(HOUR).apply(AllContents(), ROW)
    everything.print()
    env.execute_async()
    vertex = next(one for one in executor.last.vertices if "Tumbling" in one.name)
    assert vertex.parallelism == 1
    assert spec_of(executor.last, "TumblingEventTimeWindows").is_keyed is False
    with pytest.raises(ProgramError, match="must be 1"):
        everything.set_parallelism(2)


def test_count_windows_tumble_or_slide(env: StreamExecutionEnvironment) -> None:
    tumbling = keyed(env).count_window(3).apply(Contents())
    sliding = keyed(env).count_window(4, 2).apply(Contents())
    assert tumbling.get_name() == "CountTumblingWindowAssigner"
    assert sliding.get_name() == "CountSlidingWindowAssigner"


def test_mistakes_are_errors_at_once(env: StreamExecutionEnvironment) -> None:
    windowed = keyed(env).window(HOUR)
    with pytest.raises(
        TypeError, match="window_function should be a WindowFunction or ProcessWindowFunction"
    ):
        windowed.reduce(lambda a, b: a, AllContents())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="The input must be an AggregateFunction"):
        windowed.aggregate(lambda a: a)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="The allowed lateness cannot be negative"):
        windowed.allowed_lateness(-1)
    with pytest.raises(TypeError, match="does not support merging"):
        gap = EventTimeSessionWindows.with_gap(Time.seconds(5))
        keyed(env).window(gap).trigger(NeverTrigger())
    with pytest.raises(TypeError, match="a Trigger is needed"):
        windowed.trigger("often")  # type: ignore[arg-type]


WindowsAndFunction = tuple[WindowedStream | AllWindowedStream, Any]


@pytest.fixture(params=["keyed", "all"])
def windows_and_function(
    request: pytest.FixtureRequest, env: StreamExecutionEnvironment
) -> WindowsAndFunction:
    if request.param == "keyed":
        return keyed(env).window(HOUR), Contents()
    return env.from_collection([("EWR", 1)], ROW).window_all(HOUR), AllContents()


def test_aggregate_takes_no_more_arguments_than_have_a_meaning(
    windows_and_function: WindowsAndFunction,
) -> None:
    windowed, function = windows_and_function
    with pytest.raises(
        TypeError,
        match="takes window_function, accumulator_type, output_type after an AggregateFunction, but 4",
    ):
        windowed.aggregate(Average(), function, None, Types.INT(), 42)


def test_aggregate_takes_no_argument_twice(windows_and_function: WindowsAndFunction) -> None:
    windowed, function = windows_and_function
    with pytest.raises(TypeError, match="was given window_function twice"):
        windowed.aggregate(Average(), function, window_function=function)
    with pytest.raises(TypeError, match="was given output_type twice"):
        windowed.aggregate(Average(), None, None, Types.INT(), output_type=Types.INT())
    later = windowed.aggregate(Average(), function, output_type=Types.INT())
    assert later.get_type() == Types.INT()


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"window_function": 42}, "accept no window_function: pass"),
        ({"accumulator_type": Types.INT()}, "accept no accumulator_type: pass"),
        (
            {"window_function": 42, "output_type": Types.INT()},
            "accept no window_function and no output_type: pass",
        ),
    ],
    ids=["window_function", "accumulator_type", "two"],
)
def test_built_in_aggregates_take_nothing_that_is_for_an_aggregate_function(
    windows_and_function: WindowsAndFunction, keywords: dict[str, Any], message: str
) -> None:
    windowed, _ = windows_and_function
    with pytest.raises(TypeError, match=message):
        windowed.aggregate(agg.count(), **keywords)


# -- built-in aggregates


def test_built_in_aggregates_become_one_vectorised_operator(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    result = (
        keyed(env)
        .window(HOUR)
        .aggregate(
            agg.count().alias("flights"),
            agg.count("delay"),
            agg.mean("delay").alias("mean_delay"),
            agg.quantile("delay", 0.95).alias("p95"),
            agg.sum("delay"),
            agg.min("delay"),
            agg.max("origin"),
        )
    )
    result.print()
    assert str(result.get_type()) == (
        "RowTypeInfo(origin: String, window_start: TimestampTypeInfo(UTC), "
        "window_end: TimestampTypeInfo(UTC), flights: Long, count_delay: Long, mean_delay: Double, "
        "p95: Double, sum_delay: Long, min_delay: Integer, max_origin: String)"
    )
    env.execute_async()
    spec = spec_of(executor.last, "TumblingEventTimeWindows")
    assert spec.kind == "window_aggregate"
    assert spec.key_columns == ("origin",)
    assert spec.aggregates[0] == ColumnAggregate("count", None, "flights")
    assert spec.aggregates[3] == ColumnAggregate("quantile", "delay", "p95", 0.95)


def test_built_in_aggregates_say_what_they_need(env: StreamExecutionEnvironment) -> None:
    windowed = keyed(env).window(HOUR)
    with pytest.raises(ProgramError, match="there is no column 'dely' among origin, delay"):
        windowed.aggregate(agg.mean("dely"))
    with pytest.raises(ProgramError, match="a column of numbers, but its type is string"):
        windowed.aggregate(agg.sum("origin"))
    with pytest.raises(ProgramError, match="the aggregation would have two columns 'count'"):
        windowed.aggregate(agg.count(), agg.count())
    with pytest.raises(
        ProgramError, match=r"session windows in event time, or .*, not GlobalWindows"
    ):
        keyed(env).window(GlobalWindows.create()).aggregate(agg.count())
    sessions = EventTimeSessionWindows.with_gap(Time.minutes(5))
    with pytest.raises(
        ProgramError, match=r"aggregates of sessions cannot take first\(delay\) of type int32"
    ):
        keyed(env).window(sessions).aggregate(agg.first("delay"))
    with pytest.raises(ProgramError, match="sessions take no lateness"):
        keyed(env).window(sessions).allowed_lateness(5).aggregate(agg.count())
    with pytest.raises(ProgramError, match="keyed by the names of its columns"):
        by_function = env.from_collection([("EWR", 1)], ROW).key_by(lambda row: row[0])
        by_function.window(HOUR).aggregate(agg.count())
    with pytest.raises(ProgramError, match="take no other trigger"):
        keyed(env).window(HOUR).trigger(CountTrigger.of(1)).aggregate(agg.count())
    with pytest.raises(ProgramError, match="keep no records that an evictor could remove"):
        keyed(env).window(HOUR).evictor(CountEvictor.of(1)).aggregate(agg.count())
    with pytest.raises(ProgramError, match="need aligned windows"):
        staggered = TumblingEventTimeWindows.of(Time.hours(1), None, WindowStagger.NATURAL)
        keyed(env).window(staggered).aggregate(agg.count())
    with pytest.raises(TypeError, match="aggregate takes built-in aggregates"):
        windowed.aggregate(agg.count(), Average())
    with pytest.raises(ValueError, match="a quantile must be between 0 and 1"):
        agg.quantile("delay", 95)
