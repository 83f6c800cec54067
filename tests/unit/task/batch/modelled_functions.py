"""User functions of the modelled programs."""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from headrace import OutputTag
from headrace.common import Types
from headrace.common.watermark_strategy import TimestampAssigner
from headrace.datastream import (
    AsyncFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoGroupFunction,
    CoMapFunction,
    JoinFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    RuntimeContext,
)
from headrace.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)

Event = tuple[int, int]
"""(key, epoch ms)"""
EVENT: Final = Types.TUPLE([Types.LONG(), Types.LONG()])
RESULT: Final = Types.PICKLED_BYTE_ARRAY()
RULES: Final = MapStateDescriptor("rules", Types.LONG(), Types.LONG())
ODD: Final = OutputTag("odd", EVENT)
LATE: Final = OutputTag("late", EVENT)
DISORDER_MS: Final = 100
"""No event is later than this."""
END_MS: Final = 10**9

results: list[Any] = []


class TimeOfEvent(TimestampAssigner):
    def extract_timestamp(self, value: Event, record_timestamp: int) -> int:
        return value[1]


class Sum(KeyedProcessFunction):
    """Counts a key's events, tells whether they came in order of time, and gives both by a timer at their end."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self._last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(
        self, value: Event, ctx: KeyedProcessFunction.Context
    ) -> Iterable[Any] | None:
        last = self._last.value()
        assert last is None or last <= value[1], "rows of a key come in order of time"
        self._last.update(value[1])
        self._count.update((self._count.value() or 0) + 1)
        assert ctx.timer_service().current_watermark() == -(2**63)
        ctx.timer_service().register_event_time_timer(END_MS)
        ctx.timer_service().register_processing_time_timer(2**62)
        return None

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        assert ctx.timer_service().current_watermark() == 2**63 - 1
        yield ctx.get_current_key(), timestamp, self._count.value()


class Inventory(KeyedProcessFunction):
    """Keeps lists and maps of a key's events, and gives them by timers at every tenth millisecond of event time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._times = runtime_context.get_map_state(
            MapStateDescriptor("times", Types.LONG(), Types.LONG())
        )
        self._all = runtime_context.get_list_state(ListStateDescriptor("all", Types.LONG()))

    def process_element(self, value: Event, ctx: KeyedProcessFunction.Context) -> None:
        ten = value[1] // 10 * 10
        self._times.put(ten, (self._times.get(ten) or 0) + 1)
        self._all.add(value[1])
        ctx.timer_service().register_event_time_timer(ten)
        ctx.timer_service().register_event_time_timer(END_MS)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        if timestamp == END_MS:
            yield ctx.get_current_key(), "all", sorted(self._all.get())
        elif self._times.contains(timestamp):
            yield ctx.get_current_key(), timestamp, "seen"


class Window(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        window = context.window()
        yield key, window.start, window.end, len(list(elements))


class WindowSize(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        yield key, len(list(elements))


class Latest(KeyedCoProcessFunction):
    """Pairs each event of the second stream with the number of events of the first that are not later."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element1(self, value: Event, ctx: KeyedCoProcessFunction.Context) -> None:
        self._count.update((self._count.value() or 0) + 1)

    def process_element2(self, value: Event, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        yield value, self._count.value() or 0


class LatestFlat(CoFlatMapFunction):
    """Gives what `Latest` gives."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def flat_map1(self, value: Event) -> None:
        self._count.update((self._count.value() or 0) + 1)

    def flat_map2(self, value: Event) -> Iterator[Any]:
        yield value, self._count.value() or 0


class BothMapped(CoMapFunction):
    def map1(self, value: Event) -> Any:
        return "first", value

    def map2(self, value: Event) -> Any:
        return "second", value


class LatestAtEnd(KeyedCoProcessFunction):
    """Gives what `Latest` gives, by a timer, whatever comes first."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._first = runtime_context.get_list_state(ListStateDescriptor("first", Types.LONG()))
        self._second = runtime_context.get_list_state(ListStateDescriptor("second", EVENT))

    def process_element1(self, value: Event, ctx: KeyedCoProcessFunction.Context) -> None:
        self._first.add(value[1])

    def process_element2(self, value: Event, ctx: KeyedCoProcessFunction.Context) -> None:
        self._second.add(value)
        ctx.timer_service().register_event_time_timer(END_MS)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[Any]:
        times = list(self._first.get())
        for event in self._second.get():
            yield tuple(event), sum(time <= event[1] for time in times)


class ByRule(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(
        self, value: Event, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[Any]:
        yield value, sorted(ctx.get_broadcast_state(RULES).keys())

    def process_broadcast_element(
        self, value: Event, ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        ctx.get_broadcast_state(RULES).put(value[0], value[1])


class ByRuleAtEnd(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Gives what `ByRule` gives, by a timer that event time reaches when all rules are there."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", EVENT))

    def process_element(
        self, value: Event, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> None:
        self._waiting.add(value)
        ctx.timer_service().register_event_time_timer(END_MS)

    def process_broadcast_element(
        self, value: Event, ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        ctx.get_broadcast_state(RULES).put(value[0], value[1])

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterator[Any]:
        for value in self._waiting.get():
            yield tuple(value), sorted(ctx.get_broadcast_state(RULES).keys())


class PassBesideRules(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(
        self, value: Event, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[Event]:
        yield value

    def process_broadcast_element(
        self, value: Event, ctx: BroadcastProcessFunction.Context
    ) -> None:
        ctx.get_broadcast_state(RULES).put(value[0], value[1])


class Pair(ProcessJoinFunction[Any, Any, Any]):
    def process_element(
        self, left: Event, right: Event, ctx: ProcessJoinFunction.Context
    ) -> Iterator[Any]:
        yield left, right


class Joined(JoinFunction[Any, Any, Any]):
    def join(self, first: Event, second: Event) -> Any:
        return tuple(first), tuple(second)


class Grouped(CoGroupFunction[Any, Any, Any]):
    def co_group(self, first: Any, second: Any) -> Iterator[Any]:
        yield sorted(map(tuple, first)), sorted(map(tuple, second))


class OddsAside(ProcessFunction):
    def process_element(self, value: Event, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if value[1] % 2:
            yield ODD, value
        else:
            yield value


class Both(CoFlatMapFunction):
    def flat_map1(self, value: Event) -> Iterator[Any]:
        yield "first", value

    def flat_map2(self, value: Event) -> Iterator[Any]:
        yield "second", value


class Answer(AsyncFunction[Any, Any]):
    """Answers the later, the smaller the rest of the event's time."""

    async def async_invoke(self, value: Event) -> list[Event]:
        for _ in range(3 - value[1] % 4):
            await asyncio.sleep(0)
        return [(value[0] + 10, value[1])]


class Numbered(KeyedProcessFunction):
    """Passes the first two events of a key and time, and so shows that state lasts as long as its key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = runtime_context.get_map_state(
            MapStateDescriptor("seen", Types.LONG(), Types.LONG())
        )

    def process_element(
        self, value: Event, ctx: KeyedProcessFunction.Context
    ) -> Iterable[Event] | None:
        seen = self._seen.get(value[1]) or 0
        self._seen.put(value[1], seen + 1)
        return [value] if seen < 2 else None


def keep(value: Any) -> Any:
    results.append(value)
    return value


def key_of(event: Event) -> int:
    return event[0]


def key_plus(event: Event) -> Event:
    return event[0] + 1, event[1]


def as_stretches(values: Iterator[Event]) -> Iterator[list[Event]]:
    """The events that follow each other with one key, as they came."""
    for _, stretch in groupby(values, key_of):
        yield list(stretch)
