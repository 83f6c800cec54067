from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types
from headrace.core.errors import ProgramError
from headrace.core.record_batch import BatchType
from headrace.datastream import (
    BroadcastConnectedStream,
    BroadcastProcessFunction,
    BroadcastStream,
    KeyedBroadcastProcessFunction,
)
from headrace.datastream.state import MapStateDescriptor, ValueStateDescriptor
from headrace.functions.specs.operator_specs import BroadcastProcessSpec, KeyedBroadcastProcessSpec
from tests.unit.api.recording import RecordingExecutor, plan_nodes, spec_of, types_of

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class Plain(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        yield value


class Keyed(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        yield value


def numbers(env: StreamExecutionEnvironment) -> Any:
    return env.from_collection([1, 2], Types.INT())


def test_a_stream_meets_a_broadcast_stream(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    texts = env.from_collection(["a"], Types.STRING())
    rules = texts.broadcast(RULES)
    assert isinstance(rules, BroadcastStream)
    connected = numbers(env).connect(rules)
    assert isinstance(connected, BroadcastConnectedStream)
    met = connected.process(Plain(), Types.STRING()).name("met")
    assert met.get_type() == Types.STRING()
    met.print()
    nodes = {node["type"]: node for node in plan_nodes(env.get_execution_plan())}
    strategies = [one["ship_strategy"] for one in nodes["met"]["predecessors"]]
    assert strategies == ["REBALANCE", "BROADCAST"]
    env.execute_async()
    assert isinstance(spec_of(executor.last, "met"), BroadcastProcessSpec)
    assert types_of(executor.last, "met").inputs == (
        BatchType(Types.INT()),
        BatchType(Types.STRING()),
    )


def test_a_keyed_stream_stays_keyed(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    keyed = numbers(env).key_by(lambda value: value, Types.INT())
    rules = env.from_collection(["a"], Types.STRING()).broadcast(RULES)
    keyed.connect(rules).process(Keyed()).name("met").print()
    env.execute_async()
    assert isinstance(spec_of(executor.last, "met"), KeyedBroadcastProcessSpec)
    assert types_of(executor.last, "met").inputs == (
        BatchType(Types.INT(), Types.INT()),
        BatchType(Types.STRING()),
    )


def test_without_descriptors_a_stream_is_only_sent_to_everybody(
    env: StreamExecutionEnvironment,
) -> None:
    numbers(env).broadcast().print()
    (source, sink) = plan_nodes(env.get_execution_plan())
    assert source["id"] < sink["id"]
    assert sink["predecessors"][0]["ship_strategy"] == "BROADCAST"


def test_keyed_functions_need_keys_and_others_none(env: StreamExecutionEnvironment) -> None:
    rules = numbers(env).broadcast(RULES)
    with pytest.raises(TypeError, match="needs a keyed stream: call key_by on it first"):
        numbers(env).connect(rules).process(Keyed())
    with pytest.raises(TypeError, match="needs a stream without keys"):
        numbers(env).key_by(lambda value: value).connect(rules).process(Plain())
    with pytest.raises(TypeError, match="must be a BroadcastProcessFunction or Keyed"):
        numbers(env).connect(rules).process(lambda value: value)


def test_descriptors_are_of_maps_and_have_names_of_their_own(
    env: StreamExecutionEnvironment,
) -> None:
    with pytest.raises(TypeError, match="broadcast takes MapStateDescriptors"):
        numbers(env).broadcast(ValueStateDescriptor("value", Types.INT()))
    with pytest.raises(ProgramError, match="two broadcast states are called 'rules'"):
        numbers(env).broadcast(RULES, MapStateDescriptor("rules", Types.INT(), Types.INT()))


def test_a_keyed_stream_cannot_be_broadcast(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(ProgramError, match="Cannot override partitioning for KeyedStream"):
        numbers(env).key_by(lambda value: value).broadcast(RULES)
