from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from headrace import OutputTag, StreamExecutionEnvironment, Time, Types
from headrace.api.streams.data_stream import DataStream
from headrace.core.errors import ProgramError
from headrace.core.record_batch import BatchType
from headrace.datastream.functions import (
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    ProcessJoinFunction,
)
from headrace.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    NeverTrigger,
    TumblingEventTimeWindows,
)
from tests.unit.api.recording import RecordingExecutor, plan_nodes, spec_of, types_of

ORDER = Types.ROW_NAMED(["order_id", "amount"], [Types.INT(), Types.DOUBLE()])
PAYMENT = Types.ROW_NAMED(["paid", "bank"], [Types.INT(), Types.STRING()])
HOUR = TumblingEventTimeWindows.of(Time.hours(1))


class Both(JoinFunction[Any, Any, Any]):
    def join(self, first: Any, second: Any) -> Any:
        return first, second


class Flat(FlatJoinFunction[Any, Any, Any]):
    def join(self, first: Any, second: Any) -> Iterable[Any]:
        yield first


class Sides(CoGroupFunction[Any, Any, Any]):
    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Iterable[Any]:
        yield len(list(first)), len(list(second))


class Pair(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left, right


def orders(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([(1, 2.5)], ORDER)


def payments(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([(1, "A")], PAYMENT)


def test_a_join_carries_everything_that_was_set(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    left, right = OutputTag("left", ORDER), OutputTag("right", PAYMENT)
    windows = orders(env).join(payments(env)).where("order_id").equal_to("paid").window(HOUR)
    windows.trigger(CountTrigger.of(3)).evictor(CountEvictor.of(5)).allowed_lateness(500)
    windows.side_output_left_late_data(left).side_output_right_late_data(right)
    joined = windows.apply(Both(), Types.TUPLE([ORDER, PAYMENT]))
    joined.print()
    joined.get_side_output(right).print()
    env.execute_async()
    spec = spec_of(executor.last, "Join")
    assert spec.kind == "window_join"
    assert repr(spec.assigner) == "TumblingEventTimeWindows(3600000, 0)"
    assert (repr(spec.trigger), repr(spec.evictor)) == ("CountTrigger(3)", "CountEvictor(5)")
    assert (spec.allowed_lateness_ms, spec.late_tag_ids) == (500, ("left", "right"))
    assert type(spec.function).__name__ == "Both"
    types = types_of(executor.last, "Join")
    assert types.inputs == (BatchType(ORDER, Types.INT()), BatchType(PAYMENT, Types.INT()))
    assert types.side_outputs == {"left": BatchType(ORDER), "right": BatchType(PAYMENT)}


def test_plans_show_joins_with_assigner_trigger_evictor_and_function(
    env: StreamExecutionEnvironment,
) -> None:
    windows = orders(env).co_group(payments(env)).where("order_id").equal_to("paid").window(HOUR)
    windows.evictor(CountEvictor.of(2)).apply(Sides()).print()
    node = next(one for one in plan_nodes(env.get_execution_plan()) if one["type"] == "CoGroup")
    assert node["contents"] == (
        "CoGroup(TumblingEventTimeWindows(3600000, 0), EventTimeTrigger, CountEvictor(2), Sides)"
    )


def test_functions_of_every_kind_are_taken(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    def joined() -> Any:
        return orders(env).join(payments(env)).where("order_id").equal_to("paid").window(HOUR)

    def grouped() -> Any:
        return orders(env).co_group(payments(env)).where("order_id").equal_to("paid").window(HOUR)

    streams = {
        "plain join": joined().apply(lambda order, payment: order),
        "flat": joined().apply(Flat(), ORDER),
        "sides": grouped().apply(Sides()),
        "plain co-group": grouped().apply(lambda first, second: first),
    }
    for name, stream in streams.items():
        stream.name(name).print()
    env.execute_async()
    kinds = [spec_of(executor.last, name).kind for name in streams]
    assert kinds == ["window_join", "window_join", "co_group", "co_group"]
    assert streams["flat"].get_type() == ORDER
    assert streams["sides"].get_type() == Types.PICKLED_BYTE_ARRAY()


def test_keys_may_be_selected_by_functions(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    by_function = orders(env).join(payments(env)).where(lambda row: row[0], Types.LONG())
    windows = by_function.equal_to(lambda row: row[0], key_type=Types.LONG()).window(HOUR)
    windows.apply(Both()).print()
    env.execute_async()
    assert [one.key_type for one in types_of(executor.last, "Join").inputs] == [Types.LONG()] * 2


def test_keys_of_different_types_would_not_meet(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(ProgramError, match="keys of one type, but these are Integer and String"):
        orders(env).join(payments(env)).where("order_id").equal_to("bank")
    with pytest.raises(ProgramError, match="keys of one type, but these are Integer and String"):
        orders(env).key_by("order_id").interval_join(payments(env).key_by("bank"))


def test_mistakes_in_joins_are_errors_at_once(env: StreamExecutionEnvironment) -> None:
    not_a_stream: Any = "payments"
    with pytest.raises(TypeError, match="a DataStream is needed to join with, not 'payments'"):
        orders(env).join(not_a_stream)
    keyed = orders(env).join(payments(env)).where("order_id").equal_to("paid")
    with pytest.raises(TypeError, match="WindowAssigner"):
        keyed.window(3)
    with pytest.raises(TypeError, match="does not support merging"):
        keyed.window(EventTimeSessionWindows.with_gap(Time.seconds(1))).trigger(NeverTrigger())
    not_an_evictor: Any = CountTrigger.of(1)
    with pytest.raises(TypeError, match=r"an Evictor is needed, not CountTrigger\(1\)"):
        keyed.window(HOUR).evictor(not_an_evictor)
    not_a_tag: Any = "late"
    with pytest.raises(TypeError, match="an OutputTag is needed, not 'late'"):
        keyed.window(HOUR).side_output_left_late_data(not_a_tag)
    no_function: Any = 7
    with pytest.raises(TypeError, match="JoinFunction"):
        keyed.window(HOUR).apply(no_function)
    function_class: Any = Both
    with pytest.raises(TypeError, match="pass an instance"):
        keyed.window(HOUR).apply(function_class)


def test_an_interval_join_carries_its_bounds_in_milliseconds(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    left, right = OutputTag("left", ORDER), OutputTag("right", PAYMENT)
    pairs = orders(env).key_by("order_id").interval_join(payments(env).key_by("paid"))
    joined = (
        pairs.between(Time.seconds(-2), timedelta(seconds=3))
        .lower_bound_exclusive()
        .upper_bound_exclusive()
        .side_output_left_late_data(left)
        .side_output_right_late_data(right)
        .process(Pair(), ORDER)
    )
    joined.print()
    pairs.between(Time.seconds(0), Time.seconds(1)).process(Pair()).name("inclusive").print()
    env.execute_async()
    spec = spec_of(executor.last, "Interval Join")
    assert (spec.lower_bound_ms, spec.upper_bound_ms) == (-1999, 2999)
    assert spec.late_tag_ids == ("left", "right")
    sides = types_of(executor.last, "Interval Join").side_outputs
    assert sides == {"left": BatchType(ORDER), "right": BatchType(PAYMENT)}
    inclusive = spec_of(executor.last, "inclusive")
    assert (inclusive.lower_bound_ms, inclusive.upper_bound_ms) == (0, 1000)
    assert inclusive.late_tag_ids == (None, None)


def test_mistakes_in_interval_joins_are_errors_at_once(env: StreamExecutionEnvironment) -> None:
    keyed, other = orders(env).key_by("order_id"), payments(env).key_by("paid")
    not_keyed: Any = payments(env)
    with pytest.raises(TypeError, match="needs a KeyedStream"):
        keyed.interval_join(not_keyed)
    with pytest.raises(ValueError, match="the lower bound of an interval join, 1 ms, must not exc"):
        keyed.interval_join(other).between(Time.milliseconds(1), Time.milliseconds(0))
    point = keyed.interval_join(other).between(Time.milliseconds(5), Time.milliseconds(5))
    with pytest.raises(ValueError, match="no millisecond lies between the exclusive bounds 5 ms"):
        point.upper_bound_exclusive().process(Pair())
    not_a_function: Any = Both()
    with pytest.raises(TypeError, match="must be a ProcessJoinFunction"):
        point.process(not_a_function)
