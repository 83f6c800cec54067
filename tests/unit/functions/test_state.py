"""State descriptors, maps' operators, time to live."""

import pickle
from collections.abc import Iterable
from typing import Any

import pytest

from headrace.core.types.time_values import Time
from headrace.core.types.type_info import Types
from headrace.functions.record import AggregateFunction, ReduceFunction
from headrace.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)


class Sum(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1 + value2


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return (0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return (acc_a[0] + acc_b[0], acc_a[1] + acc_b[1])


class DictState(MapState[str, int]):
    def __init__(self) -> None:
        self.held: dict[str, int] = {}

    def get(self, key: str) -> int | None:
        return self.held.get(key)

    def put(self, key: str, value: int) -> None:
        self.held[key] = value

    def put_all(self, dict_value: dict[str, int]) -> None:
        self.held.update(dict_value)

    def remove(self, key: str) -> None:
        self.held.pop(key, None)

    def contains(self, key: str) -> bool:
        return key in self.held

    def items(self) -> Iterable[tuple[str, int]]:
        return self.held.items()

    def keys(self) -> Iterable[str]:
        return self.held.keys()

    def values(self) -> Iterable[int]:
        return self.held.values()

    def is_empty(self) -> bool:
        return not self.held

    def clear(self) -> None:
        self.held.clear()


def test_descriptors_know_name_and_type() -> None:
    assert ValueStateDescriptor("v", Types.INT()).get_name() == "v"
    assert ListStateDescriptor("l", Types.INT()).type_info == Types.LIST(Types.INT())
    described = MapStateDescriptor("m", Types.STRING(), Types.INT())
    assert described.type_info == Types.MAP(Types.STRING(), Types.INT())


def test_a_reduce_function_may_be_a_class_or_a_callable() -> None:
    for function in (Sum(), lambda a, b: a + b):
        descriptor = ReducingStateDescriptor("r", function, Types.INT())
        assert descriptor.get_reduce_function().reduce(2, 3) == 5
    with pytest.raises(TypeError, match="ReduceFunction or a callable"):
        ReducingStateDescriptor("r", 5, Types.INT())  # type: ignore[arg-type]


def test_an_aggregate_function_must_be_one() -> None:
    function = Mean()
    assert AggregatingStateDescriptor("a", function, Types.LONG()).get_agg_function() is function
    with pytest.raises(TypeError, match="AggregateFunction"):
        AggregatingStateDescriptor("a", len, Types.LONG())  # type: ignore[arg-type]


def test_maps_work_as_dicts_do() -> None:
    state = DictState()
    state["a"] = 1
    state["b"] = 2
    del state["b"]
    del state["never"]
    assert state["a"] == 1 and state["b"] is None
    assert "a" in state and "b" not in state
    assert list(state) == ["a"]


def test_time_to_live_keeps_all_its_settings() -> None:
    config = (
        StateTtlConfig.new_builder(Time.seconds(1))
        .set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)
        .set_state_visibility(StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp)
        .use_processing_time()
        .cleanup_full_snapshot()
        .cleanup_incrementally(10, True)
        .cleanup_in_rocksdb_compact_filter(100, Time.days(1))
        .disable_cleanup_in_background()
        .build()
    )
    copy = pickle.loads(pickle.dumps(config))
    assert copy == config and copy.is_enabled()
    assert copy.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite
    assert copy.get_state_visibility().name == "ReturnExpiredIfNotCleanedUp"
    assert copy.get_ttl() == Time.seconds(1)
    assert copy.get_ttl_time_characteristic().value == 0
    strategies = copy.get_cleanup_strategies()
    assert strategies.in_full_snapshot() and not strategies.is_cleanup_in_background()
    incremental = strategies.get_incremental_cleanup_strategy()
    assert (incremental.get_cleanup_size(), incremental.run_cleanup_for_every_record()) == (
        10,
        True,
    )
    compaction = strategies.get_rocksdb_compact_filter_cleanup_strategy()
    assert compaction.get_query_time_after_num_entries() == 100
    assert compaction.get_periodic_compaction_time() == Time.days(1)


def test_time_to_live_has_background_sweeping_unless_disabled() -> None:
    strategies = StateTtlConfig.new_builder(Time.days(1)).build().get_cleanup_strategies()
    incremental = strategies.get_incremental_cleanup_strategy()
    assert incremental is not None and incremental.get_cleanup_size() == 5
    assert strategies.in_rocksdb_compact_filter() and not strategies.in_full_snapshot()
    disabled = StateTtlConfig.new_builder(Time.days(1)).disable_cleanup_in_background().build()
    assert disabled.get_cleanup_strategies().get_incremental_cleanup_strategy() is None


def test_time_to_live_may_be_off() -> None:
    off = StateTtlConfig.UpdateType.Disabled
    config = StateTtlConfig.new_builder(Time.days(1)).set_update_type(off).build()
    assert not config.is_enabled()
    descriptor = ValueStateDescriptor("v", Types.INT())
    descriptor.enable_time_to_live(config)
    assert descriptor.ttl_config == config


@pytest.mark.parametrize("milliseconds", [0, -5])
def test_values_that_are_to_live_no_time_at_all_are_refused(milliseconds: int) -> None:
    with pytest.raises(ValueError, match="longer than 0 ms"):
        StateTtlConfig.new_builder(Time.milliseconds(milliseconds))
