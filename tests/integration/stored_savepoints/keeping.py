"""Functions that keep state: each shows what it has kept when the numbers behind the savepoint come."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from headrace import Row, Time, Types
from headrace.common import Instant, RowKind
from headrace.datastream import (
    AggregateFunction,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
)
from headrace.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from headrace.datastream.window import GlobalWindow, TimeWindow
from headrace.functions.joins import TaggedUnion
from tests.integration.stored_savepoints.kept_values import (
    ALL_TYPES,
    ANY,
    Colour,
    Seat,
    Visit,
    all_types,
    own_values,
    shown,
)
from tests.integration.stored_savepoints.signals import FIRED

SAVED: Final = 30
"""Numbers up to this one come before the savepoint, the others behind it."""
PAIR: Final = Types.TUPLE([Types.LONG(), Types.LONG()])
CHANGES: Final = Types.ROW_NAMED(["number"], [Types.LONG()])
FOR_EVER: Final = Time.days(36_500)


class Mean(AggregateFunction):
    """Accumulators are pairs of count and sum; `is_row`: rows with an Instant in them, which no type declares."""

    def __init__(self, *, is_row: bool = False) -> None:
        self._is_row = is_row

    def create_accumulator(self) -> Any:
        return Row(Instant(0, 0), 0) if self._is_row else (0, 0)

    def add(self, value: int, accumulator: Any) -> Any:
        if self._is_row:
            return Row(Instant(accumulator[0].seconds + 1, 0), accumulator[1] + value)
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator: Any) -> Any:
        count = accumulator[0].seconds if self._is_row else accumulator[0]
        return accumulator[1] / count if count else None

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        if self._is_row:
            count = acc_a[0].seconds + acc_b[0].seconds
            return Row(Instant(count, 0), acc_a[1] + acc_b[1])
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Larger(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return max(value1, value2, key=lambda one: one if isinstance(one, int) else one.seconds)


class KeepsDeclared(KeyedProcessFunction):
    """State of every kind whose types are declared."""

    def open(self, runtime_context: RuntimeContext) -> None:
        context = runtime_context
        self._row = context.get_state(ValueStateDescriptor("row", ALL_TYPES))
        self._change = context.get_state(ValueStateDescriptor("change", CHANGES))
        self._numbers = context.get_list_state(ListStateDescriptor("numbers", Types.LONG()))
        self._times = context.get_map_state(
            MapStateDescriptor("times", Types.STRING(), Types.INSTANT())
        )
        self._highest = context.get_reducing_state(
            ReducingStateDescriptor("highest", Larger(), Types.LONG())
        )
        self._mean = context.get_aggregating_state(AggregatingStateDescriptor("mean", Mean(), PAIR))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        if value >= SAVED:
            yield f"{ctx.get_current_key()} row {shown(self._row.value())}"
            yield f"{ctx.get_current_key()} change {shown(self._change.value())}"
            yield f"{ctx.get_current_key()} numbers {list(self._numbers.get())}"
            yield f"{ctx.get_current_key()} times {sorted(self._times.items())}"
            yield f"{ctx.get_current_key()} {self._highest.get()} {self._mean.get()}"
        self._row.update(all_types(value))
        self._change.update(Row.of_kind(RowKind.UPDATE_BEFORE, number=value))
        self._numbers.add(value)
        self._times.put(f"at {value % 7}", Instant(value, 1))
        self._highest.add(value)
        self._mean.add(value)


class KeepsUndeclared(KeyedProcessFunction):
    """State of every kind whose values are stored as pickles, under keys that are, too."""

    def open(self, runtime_context: RuntimeContext) -> None:
        context = runtime_context
        self._last = context.get_state(ValueStateDescriptor("last", ANY))
        self._values = context.get_list_state(ListStateDescriptor("values", ANY))
        self._by_value = context.get_map_state(MapStateDescriptor("by value", ANY, ANY))
        self._latest = context.get_reducing_state(ReducingStateDescriptor("latest", Larger(), ANY))
        self._mean = context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(is_row=True), ANY)
        )

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        key = shown(ctx.get_current_key())
        visits = [Instant(1, 2), TimeWindow(3, 4), GlobalWindow.get(), RowKind.DELETE, Colour.RED]
        if value >= SAVED:
            yield f"{key} last {shown(self._last.value())}"
            yield f"{key} values {' '.join(map(shown, self._values.get()))}"
            found = [shown(self._by_value.get(one)) for one in (*visits, Row(a=1), Seat(1, "C"))]
            yield f"{key} by value {' '.join(found)}"
            yield f"{key} {self._latest.get()} {self._mean.get()}"
        self._last.update(Visit(value, Instant(value, 3), TimeWindow(0, value)))
        if value < SAVED:
            self._values.update(own_values(value))
        for one in (*visits, Row(a=1), Seat(1, "C")):
            self._by_value.put(one, (value, one))
        self._latest.add(Instant(value, 0))
        self._mean.add(value)


class KeepsForAWhile(KeyedProcessFunction):
    """Values with a time to live: one that is over for sure, one that is not, and one of event time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        def living(name: str, ttl: StateTtlConfig.Builder) -> ValueStateDescriptor:
            descriptor = ValueStateDescriptor(name, Types.LONG())
            descriptor.enable_time_to_live(ttl.build())
            return descriptor

        new = StateTtlConfig.new_builder
        self._gone = runtime_context.get_state(living("gone", new(Time.milliseconds(1))))
        self._there = runtime_context.get_state(living("there", new(FOR_EVER)))
        self._in_event_time = runtime_context.get_state(
            living("in event time", new(Time.milliseconds(35)).use_event_time())
        )
        descriptor = MapStateDescriptor("entries", Types.LONG(), ANY)
        descriptor.enable_time_to_live(new(FOR_EVER).update_ttl_on_read_and_write().build())
        self._entries = runtime_context.get_map_state(descriptor)
        of_list = ListStateDescriptor("elements", ANY)
        of_list.enable_time_to_live(new(FOR_EVER).build())
        self._elements = runtime_context.get_list_state(of_list)

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        if value < SAVED:
            self._gone.update(value)
            self._there.update(value)
            self._entries.put(value, Seat(value, "D"))
            self._elements.add(Instant(value, 4))
        else:
            states = (self._gone, self._there, self._in_event_time)
            entries = sorted(self._entries.items())
            elements = list(self._elements.get())
            shown_states = [one.value() for one in states]
            yield f"{ctx.get_current_key()} at {value}: {shown_states} {entries} {elements}"
        if value % 3 == 0:
            self._in_event_time.update(value)


class SetsTimers(KeyedProcessFunction):
    """Timers of event time 105 ms later, and at the end of time; says of each number whether it was late."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        timestamp, timers = ctx.timestamp(), ctx.timer_service()
        assert timestamp is not None
        timers.register_event_time_timer(timestamp + 105)
        timers.register_event_time_timer(timestamp + 205)
        timers.delete_event_time_timer(timestamp + 5)
        yield f"{value} {'late' if timestamp < timers.current_watermark() else 'in time'}"

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[str]:
        yield f"{shown(ctx.get_current_key())} at {timestamp}"


class SetsAlarm(KeyedProcessFunction):
    """A timer of processing time for each key, due when the savepoint is there."""

    def __init__(self, run: str, due_ms: int) -> None:
        self._run = run
        self._due_ms = due_ms

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        if value < SAVED:
            ctx.timer_service().register_processing_time_timer(self._due_ms)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[str]:
        FIRED[self._run].add_one()
        yield f"{ctx.get_current_key()} at {ctx.time_domain().name}"


class KeepsOfTwo(KeyedCoProcessFunction):
    """One state for two streams, and timers."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._both = runtime_context.get_list_state(ListStateDescriptor("both", ANY))

    def process_element1(self, value: int, ctx: KeyedCoProcessFunction.Context) -> None:
        self._both.add(TaggedUnion.one(value))
        ctx.timer_service().register_event_time_timer(1_000_000)

    def process_element2(self, value: int, ctx: KeyedCoProcessFunction.Context) -> None:
        self._both.add(TaggedUnion.two(value))

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[str]:
        both = sorted(map(repr, self._both.get()))
        yield f"{ctx.get_current_key()} {' '.join(both)}"


class KeepsOfSubtask(ProcessFunction):
    """Lists of operator state; with its first number behind the savepoint a subtask shows what it has got of them."""

    def open(self, runtime_context: RuntimeContext) -> None:
        store = runtime_context.get_operator_state_store()
        self._split = store.get_list_state(ListStateDescriptor("split", Types.LONG()))
        self._split_any = store.get_list_state(ListStateDescriptor("split any", ANY))
        self._split_rows = store.get_list_state(ListStateDescriptor("split rows", ALL_TYPES))
        self._whole = store.get_union_list_state(ListStateDescriptor("whole", CHANGES))
        self._has_shown = False

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[str]:
        if value < SAVED:
            self._split.add(value)
            self._split_any.add_all(own_values(value)[: value % 9])
            self._split_rows.add(all_types(value))
            self._whole.add(Row.of_kind(RowKind.DELETE, number=value))
        elif not self._has_shown:
            self._has_shown = True
            for state in (self._split, self._split_any, self._split_rows):
                yield from map(shown, state.get())
            yield f"whole: {' '.join(sorted(map(shown, self._whole.get())))}"


RULES: Final = MapStateDescriptor("rules", Types.STRING(), ALL_TYPES)
ANY_RULES: Final = MapStateDescriptor("any rules", ANY, ANY)


def _rules_in(context: Any) -> str:
    rules = context.get_broadcast_state(RULES).items()
    others = context.get_broadcast_state(ANY_RULES).items()
    texts = [f"{key}: {row['text']}" for key, row in rules]
    return " ".join(sorted(texts + [f"{shown(key)}: {shown(one)}" for key, one in others]))


def _keep_rule(value: int, context: Any) -> None:
    context.get_broadcast_state(RULES).put(f"rule {value % 4}", all_types(value))
    context.get_broadcast_state(ANY_RULES).put(Seat(value % 3, "E"), Instant(value, 0))


class Rules(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(
        self, value: int, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[str]:
        yield f"{value} {_rules_in(ctx)}"

    def process_broadcast_element(
        self, value: int, ctx: BroadcastProcessFunction.Context
    ) -> Iterable[str]:
        _keep_rule(value, ctx)
        return ()


class KeyedRules(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Broadcast and keyed state in one operator."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[str]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        if value >= SAVED:
            yield f"{ctx.get_current_key()} {count} {_rules_in(ctx)}"

    def process_broadcast_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Iterable[str]:
        _keep_rule(value, ctx)
        return ()
