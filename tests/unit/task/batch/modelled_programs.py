"""Programs of event streams, each with a plain Python model of what it gives, in any mode of running.

A program is a last step of `CASES` behind earlier steps of `STEPS`. What is promised is a multiset: `settle` makes it
of the results of STREAMING mode where that gives intermediate results too.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from headrace import StreamExecutionEnvironment, WatermarkStrategy, agg, col
from headrace.api.streams.data_stream import DataStream
from headrace.api.streams.keyed_stream import KeyedStream
from headrace.common import Duration, Row, Time, Types
from headrace.datastream import AsyncDataStream, Order
from headrace.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tests.unit.task.batch.modelled_functions import (
    DISORDER_MS,
    END_MS,
    EVENT,
    LATE,
    ODD,
    RESULT,
    RULES,
    Answer,
    Both,
    BothMapped,
    ByRule,
    ByRuleAtEnd,
    Event,
    Grouped,
    Inventory,
    Joined,
    Latest,
    LatestAtEnd,
    LatestFlat,
    Numbered,
    OddsAside,
    Pair,
    PassBesideRules,
    Sum,
    TimeOfEvent,
    Window,
    WindowSize,
    as_stretches,
    key_of,
    key_plus,
)
from tests.unit.task.batch.program_models import (
    Model,
    as_they_are,
    co_group_model,
    counted,
    fullest_of_window,
    inventory_model,
    join_model,
    largest_model,
    last_of_key,
    latest_model,
    rules_model,
    sessions,
    sum_model,
    tumbling,
    window_join_model,
    with_late_records,
)

SUMMED: Final = Types.ROW_NAMED(["f0", "f1_sum"], [Types.LONG(), Types.LONG()])
Build = Callable[[DataStream, DataStream], DataStream]


@dataclass(frozen=True)
class Case:
    """The last step of a program. `is_for_batch`: it shows what only BATCH mode promises.

    `settle` makes what is promised of the results of STREAMING mode.
    """

    build: Build
    model: Model
    settle: Callable[[list[Any]], list[Any]] = as_they_are
    is_for_batch: bool = False


def aside(stream: DataStream) -> DataStream:
    evens = stream.process(OddsAside(), EVENT)
    odds = evens.get_side_output(ODD)
    return evens.map(lambda one: ("even", one), RESULT).union(
        odds.map(lambda one: ("odd", one), RESULT)
    )


def in_little_order(stream: DataStream) -> DataStream:
    """Let events of more than a millisecond's disorder be late, where anything can be."""
    return stream.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(
            Duration.of_millis(1)
        ).with_timestamp_assigner(TimeOfEvent())
    )


def with_late_ones_aside(first: DataStream, _: DataStream) -> DataStream:
    windows = (
        in_little_order(first)
        .key_by(key_of, Types.LONG())
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .side_output_late_data(LATE)
        .process(Window(), RESULT)
    )
    late = windows.get_side_output(LATE).map(lambda event: ("late", *event), RESULT)
    return windows.map(lambda one: ("window", one[0], one[1], one[3]), RESULT).union(late)


def as_row(stream: DataStream, name: str) -> KeyedStream:
    columns = Types.ROW_NAMED(["key", name], [Types.LONG(), Types.LONG()])
    return stream.map(lambda event: Row(**{"key": event[0], name: event[1]}), columns).key_by("key")


def joined_rows(first: DataStream, second: DataStream, *windows: Any) -> DataStream:
    pairs = as_row(first, "left").join_rows(as_row(second, "right"), *windows)
    return pairs.map(lambda row: ((row["key"], row["left"]), (row["key"], row["right"])), RESULT)


def millis(at: datetime) -> int:
    return round(at.replace(tzinfo=UTC).timestamp() * 1000)


def counted_in_columns(stream: DataStream, assigner: Any, lateness_ms: int = 0) -> DataStream:
    windows = stream.key_by("f0").window(assigner).allowed_lateness(lateness_ms)
    return windows.aggregate(agg.count().alias("count"), agg.sum("f1").alias("sum")).map(
        lambda row: (row.f0, millis(row.window_start), millis(row.window_end), row["count"]),
        RESULT,
    )


def windowed(stream: DataStream, assigner: Any) -> DataStream:
    return stream.key_by(key_of).window(assigner).process(Window(), RESULT)


CASES: Final[dict[str, Case]] = {
    "reduce": Case(
        lambda first, _: first.key_by(key_of, Types.LONG()).reduce(
            lambda a, b: (a[0], a[1] + b[1])
        ),
        sum_model,
        last_of_key,
    ),
    "rolling sum of keys without a type": Case(
        lambda first, _: first.key_by(lambda event: str(event[0])).sum(1), sum_model, last_of_key
    ),
    "process with state and timers": Case(
        lambda first, _: first.key_by(key_of, Types.LONG()).process(Sum(), RESULT),
        lambda first, _: [
            (key, time, count)
            for key, count in Counter(key for key, _ in first).items()
            for time in (END_MS, 2**62)
        ],
        is_for_batch=True,
    ),
    "lists, maps and timers": Case(
        lambda first, _: first.key_by(key_of, Types.LONG()).process(Inventory(), RESULT),
        inventory_model,
    ),
    "tumbling windows": Case(
        lambda first, _: windowed(first, TumblingEventTimeWindows.of(Time.milliseconds(10))),
        counted(tumbling),
    ),
    "sliding windows": Case(
        lambda first, _: windowed(
            first, SlidingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(5))
        ),
        counted(
            lambda times: [
                (start, start + 10)
                for time in times
                for start in (time // 5 * 5, time // 5 * 5 - 5)
            ]
        ),
    ),
    "session windows": Case(
        lambda first, _: windowed(first, EventTimeSessionWindows.with_gap(Time.milliseconds(5))),
        counted(sessions),
    ),
    "tumbling windows in columns": Case(
        lambda first, _: counted_in_columns(
            first, TumblingEventTimeWindows.of(Time.milliseconds(10))
        ),
        counted(tumbling),
    ),
    "session windows in columns": Case(
        lambda first, _: counted_in_columns(
            first, EventTimeSessionWindows.with_gap(Time.milliseconds(5))
        ),
        counted(sessions),
    ),
    "windows in columns that wait for late records": Case(
        lambda first, _: counted_in_columns(
            in_little_order(first), TumblingEventTimeWindows.of(Time.milliseconds(10)), 1_000
        ),
        counted(tumbling),
        fullest_of_window,
    ),
    "largest rows of windows": Case(
        lambda first, _: (
            first.key_by("f0")
            .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
            .largest_rows(2, "f1")
        ),
        largest_model,
    ),
    "windows that wait for late records": Case(
        lambda first, _: (
            in_little_order(first)
            .key_by(key_of)
            .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
            .allowed_lateness(1_000)
            .process(Window(), RESULT)
        ),
        counted(tumbling),
        fullest_of_window,
    ),
    "windows with late records aside": Case(
        with_late_ones_aside,
        lambda first, _: [
            ("window", key, start, count) for key, start, _, count in counted(tumbling)(first, [])
        ],
        with_late_records,
    ),
    "reduced windows": Case(
        lambda first, _: (
            first.key_by(key_of, Types.LONG())
            .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
            .reduce(lambda a, b: (a[0], a[1] + b[1]))
        ),
        lambda first, _: [
            (key, sum(time for other, time in first if (other, time // 10) == (key, ten)))
            for key, ten in {(key, time // 10) for key, time in first}
        ],
    ),
    "count windows": Case(
        lambda first, _: (
            first.key_by(key_of)
            .window(GlobalWindows.create())
            .trigger(PurgingTrigger.of(CountTrigger.of(3)))
            .process(WindowSize(), RESULT)
        ),
        lambda first, _: [
            (key, 3)
            for key, count in Counter(key for key, _ in first).items()
            for _ in range(count // 3)
        ],
    ),
    "connected and keyed, in order": Case(
        lambda first, second: (
            first.key_by(key_of).connect(second.key_by(key_of)).process(Latest(), RESULT)
        ),
        latest_model,
        is_for_batch=True,
    ),
    "mapped, connected and keyed, in order": Case(
        lambda first, second: (
            first.key_by(key_of).connect(second.key_by(key_of)).flat_map(LatestFlat(), RESULT)
        ),
        latest_model,
        is_for_batch=True,
    ),
    "mapped, connected and keyed": Case(
        lambda first, second: (
            first.key_by(key_of).connect(second.key_by(key_of)).map(BothMapped(), RESULT)
        ),
        lambda first, second: (
            [("first", one) for one in first] + [("second", one) for one in second]
        ),
    ),
    "connected and keyed": Case(
        lambda first, second: (
            first.key_by(key_of).connect(second.key_by(key_of)).process(LatestAtEnd(), RESULT)
        ),
        latest_model,
    ),
    "connected": Case(
        lambda first, second: first.rebalance().connect(second).flat_map(Both(), RESULT),
        lambda first, second: (
            [("first", one) for one in first] + [("second", one) for one in second]
        ),
    ),
    "broadcast that has been read before": Case(
        lambda first, second: (
            first.key_by(key_of).connect(second.broadcast(RULES)).process(ByRule(), RESULT)
        ),
        rules_model,
        is_for_batch=True,
    ),
    "broadcast": Case(
        lambda first, second: (
            first.key_by(key_of).connect(second.broadcast(RULES)).process(ByRuleAtEnd(), RESULT)
        ),
        rules_model,
    ),
    "interval join": Case(
        lambda first, second: (
            first.key_by(key_of)
            .interval_join(second.key_by(key_of))
            .between(Time.milliseconds(-3), Time.milliseconds(4))
            .process(Pair(), RESULT)
        ),
        join_model,
    ),
    "window join": Case(
        lambda first, second: (
            first.join(second)
            .where(key_of)
            .equal_to(key_of)
            .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
            .apply(Joined(), RESULT)
        ),
        window_join_model,
    ),
    "joined rows": Case(
        joined_rows,
        lambda first, second: [
            (left, right) for left in first for right in second if left[0] == right[0]
        ],
    ),
    "joined rows of windows": Case(
        lambda first, second: joined_rows(
            first, second, TumblingEventTimeWindows.of(Time.milliseconds(10))
        ),
        window_join_model,
    ),
    "counted triggers of joined windows": Case(
        lambda first, second: (
            first.co_group(second)
            .where(key_of)
            .equal_to(key_of)
            .window(GlobalWindows.create())
            .trigger(PurgingTrigger.of(CountTrigger.of(1)))
            .apply(Grouped(), RESULT)
        ),
        lambda first, second: [([one], []) for one in first] + [([], [one]) for one in second],
    ),
    "co-group": Case(
        lambda first, second: (
            first.co_group(second)
            .where(key_of)
            .equal_to(key_of)
            .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
            .apply(Grouped(), RESULT)
        ),
        co_group_model,
    ),
    "union and side output": Case(
        lambda first, second: aside(first.union(second)),
        lambda first, second: [
            ("odd" if event[1] % 2 else "even", event) for event in first + second
        ],
    ),
    "through every exchange": Case(
        lambda first, _: (
            first.shuffle()
            .map(key_plus, EVENT)
            .rescale()
            .map(key_plus, EVENT)
            .partition_custom(lambda key, count: key % count, key_of)
            .map(key_plus, EVENT)
            .broadcast()
            .filter(lambda event: True)
            .set_parallelism(1)
        ),
        lambda first, _: [(key + 3, time) for key, time in first],
    ),
    "full partitions of keys": Case(
        lambda first, _: (
            first.key_by(key_of)
            .full_window_partition()
            .map_partition(lambda events: [sorted(events)], RESULT)
        ),
        lambda first, _: [sorted(one for one in first if one[0] == key) for key in dict(first)],
    ),
    "tables of keys": Case(
        lambda first, _: (
            first.key_by("f0")
            .full_window_partition()
            .map_arrow(lambda table: table.group_by("f0").aggregate([("f1", "sum")]), SUMMED)
            .map(tuple, EVENT)
        ),
        sum_model,
    ),
    "tables of keys in pandas": Case(
        lambda first, _: (
            first.key_by("f0")
            .full_window_partition()
            .map_pandas(
                lambda frame: frame.groupby("f0", as_index=False).agg(f1_sum=("f1", "sum")), SUMMED
            )
            .map(tuple, EVENT)
        ),
        sum_model,
    ),
    "sorted keys": Case(
        lambda first, _: (
            first.key_by(key_of, Types.LONG())
            .full_window_partition()
            .sort_partition(1, Order.DESCENDING)
            .full_window_partition()
            .map_partition(as_stretches, RESULT)
        ),
        lambda first, _: [
            sorted((one for one in first if one[0] == key), reverse=True) for key in dict(first)
        ],
    ),
    "full partitions, folded": Case(
        lambda first, _: (
            first.rebalance()
            .full_window_partition()
            .reduce(lambda a, b: (a[0], a[1] + b[1]))
            .map(lambda one: (0, one[1]), EVENT)
            .key_by(key_of)
            .full_window_partition()
            .reduce(lambda a, b: (0, a[1] + b[1]))
        ),
        lambda first, _: [(0, sum(time for _, time in first))] if first else [],
    ),
    "asynchronous and ordered": Case(
        lambda first, _: AsyncDataStream.ordered_wait(first, Answer(), Time.minutes(1), 3, EVENT),
        lambda first, _: [(key + 10, time) for key, time in first],
    ),
}


@dataclass(frozen=True)
class Step:
    """A step of a program in front of its last one; events keep their times."""

    build: Callable[[DataStream], DataStream]
    model: Callable[[list[Event]], list[Event]]


def first_two_of_each(events: list[Event]) -> list[Event]:
    return [event for event, count in Counter(events).items() for _ in range(min(count, 2))]


def twice(event: Event) -> Iterator[Event]:
    yield event
    yield event[0] + 1, event[1]


def through_sides(stream: DataStream) -> DataStream:
    evens = stream.process(OddsAside(), EVENT)
    return evens.union(evens.get_side_output(ODD))


def beside_rules(stream: DataStream) -> DataStream:
    return stream.connect(stream.broadcast(RULES)).process(PassBesideRules(), EVENT)


def unchanged(events: list[Event]) -> list[Event]:
    return events


STEPS: Final[dict[str, Step]] = {
    "map": Step(
        lambda stream: stream.map(key_plus, EVENT), lambda events: list(map(key_plus, events))
    ),
    "filter": Step(
        lambda stream: stream.filter(lambda event: event[1] % 3 != 0),
        lambda events: [event for event in events if event[1] % 3],
    ),
    "filter by an expression": Step(
        lambda stream: stream.filter((col("f1") < 50) & (col("f0") != 1)),
        lambda events: [(key, time) for key, time in events if time < 50 and key != 1],
    ),
    "select expressions": Step(
        lambda stream: stream.select(key=col("f0") + 1, time=col("f1")).map(tuple, EVENT),
        lambda events: list(map(key_plus, events)),
    ),
    "flat map": Step(
        lambda stream: stream.flat_map(twice, EVENT),
        lambda events: [made for event in events for made in twice(event)],
    ),
    "columns": Step(lambda stream: stream.map_batches(lambda batch: batch), unchanged),
    "rebalance": Step(lambda stream: stream.rebalance(), unchanged),
    "shuffle": Step(
        lambda stream: stream.shuffle().map(key_plus, EVENT),
        lambda events: list(map(key_plus, events)),
    ),
    "side output": Step(through_sides, unchanged),
    "asynchronous": Step(
        lambda stream: AsyncDataStream.unordered_wait(stream, Answer(), Time.minutes(1), 5, EVENT),
        lambda events: [(key + 10, time) for key, time in events],
    ),
    "keyed state": Step(
        lambda stream: stream.key_by(key_of, Types.LONG()).process(Numbered(), EVENT),
        first_two_of_each,
    ),
    "beside a broadcast": Step(beside_rules, unchanged),
    "union with itself": Step(
        lambda stream: stream.union(stream.map(key_plus, EVENT)),
        lambda events: [*events, *map(key_plus, events)],
    ),
    "one task": Step(
        lambda stream: stream.map(key_plus, EVENT).set_parallelism(1).disable_chaining(),
        lambda events: list(map(key_plus, events)),
    ),
}


@dataclass(frozen=True)
class Program:
    """A case behind steps, by their names, for the first and for the second stream."""

    case: str
    first: tuple[str, ...] = ()
    second: tuple[str, ...] = ()

    def stream(
        self, env: StreamExecutionEnvironment, first: list[Event], second: list[Event]
    ) -> DataStream:
        """Add the program to an environment and return its results."""
        streams = [timed(env, first), timed(env, second)]
        for place, names in enumerate((self.first, self.second)):
            for name in names:
                streams[place] = STEPS[name].build(streams[place])
        return CASES[self.case].build(streams[0], streams[1])

    def expected(self, first: list[Event], second: list[Event]) -> list[Any]:
        """Return what the model gives."""
        return list(CASES[self.case].model(after(self.first, first), after(self.second, second)))

    def settled(self, found: Sequence[Any]) -> list[Any]:
        """Return what is promised of the results of STREAMING mode, and in BATCH mode, where it changes nothing."""
        return CASES[self.case].settle(list(found))


def after(names: tuple[str, ...], events: list[Event]) -> list[Event]:
    for name in names:
        events = STEPS[name].model(events)
    return events


def timed(env: StreamExecutionEnvironment, content: list[Event]) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(DISORDER_MS)
    ).with_timestamp_assigner(TimeOfEvent())
    return env.from_collection(content, EVENT).assign_timestamps_and_watermarks(strategy)


def multiset(found: Iterable[Any]) -> "Counter[str]":
    """Count results by what they look like: some are lists."""
    return Counter(map(repr, found))
