"""Programs with broadcast states, on a whole cluster."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.common.watermark_strategy import TimestampAssigner
from headrace.datastream import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from headrace.datastream.state import MapStateDescriptor, ValueStateDescriptor

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
SEEN = MapStateDescriptor("seen", Types.STRING(), Types.INT())


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[1]


def collected(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as records:
        return list(records)


class Keep(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(
        self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any]:
        yield "data", value

    def process_broadcast_element(
        self, value: Any, ctx: BroadcastProcessFunction.Context
    ) -> Iterable[Any]:
        seen = ctx.get_broadcast_state(SEEN)
        seen["count"] = (seen["count"] or 0) + 1
        yield value, seen["count"]


def test_every_subtask_sees_every_broadcast_record(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(2)
    rules = env.from_collection(["a", "b", "c"], Types.STRING()).broadcast(SEEN)
    data = env.from_collection(range(5), Types.INT())
    assert Counter(collected(data.connect(rules).process(Keep()))) == Counter(
        {
            **{("data", number): 1 for number in range(5)},
            **{("a", 1): 2, ("b", 2): 2, ("c", 3): 2},
        }
    )


class AtTheEnd(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Sums by key; at the end of event time each key gives its sum and what the broadcast stream had said."""

    def open(self, runtime_context: Any) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.INT()))

    def process_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> None:
        self.sum.update((self.sum.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(10_000)

    def process_broadcast_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        ctx.get_broadcast_state(SEEN).put(*value)

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterable[Any]:
        seen = ctx.get_broadcast_state(SEEN)
        yield ctx.get_current_key(), self.sum.value(), sorted(seen.items())


def test_timers_wait_for_both_streams(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(2)
    timed = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    data = env.from_collection([("x", 1), ("y", 2), ("x", 3)], PAIR)
    rules = env.from_collection([("r", 7), ("s", 8)], PAIR)
    met = (
        data.assign_timestamps_and_watermarks(timed)
        .key_by(lambda pair: pair[0], Types.STRING())
        .connect(rules.assign_timestamps_and_watermarks(timed).broadcast(SEEN))
        .process(AtTheEnd())
    )
    everything = [("r", 7), ("s", 8)]
    assert sorted(collected(met)) == [("x", 4, everything), ("y", 2, everything)]
