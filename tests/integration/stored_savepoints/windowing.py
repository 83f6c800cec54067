"""Windows and joins of every kind, all of which hold something when the savepoint is made."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from headrace import DataStream, Duration, OutputTag, Row, Time, Types, WatermarkStrategy, agg, col
from headrace.common import Instant
from headrace.common.watermark_strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
)
from headrace.datastream import (
    CoGroupFunction,
    ProcessAllWindowFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
)
from headrace.datastream.state import ListStateDescriptor, ValueStateDescriptor
from headrace.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeoutTrigger,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from tests.integration.stored_savepoints.keeping import PAIR, SAVED, Larger, Mean
from tests.integration.stored_savepoints.kept_values import ANY, Seat, shown
from tests.integration.stored_savepoints.signals import FIRED

KEY_COUNT: Final = 3
SPAN_MS: Final = 45_000
"""Of windows of processing time, and of the gaps between sessions."""
ROW: Final = Types.ROW_NAMED(
    ["key", "number", "rate", "text"],
    [Types.LONG(), Types.LONG(), Types.DOUBLE(), Types.STRING()],
)
OTHER_ROW: Final = Types.ROW_NAMED(["other", "seen"], [Types.LONG(), Types.LONG()])
LATE: Final = OutputTag("late", Types.INT())
LATE_ANY: Final = OutputTag("late any")
LATE_ROWS: Final = OutputTag("late rows", ROW)
TUMBLING: Final = TumblingEventTimeWindows.of(Time.milliseconds(170))
SLIDING: Final = SlidingEventTimeWindows.of(Time.milliseconds(200), Time.milliseconds(100))
SESSIONS: Final = EventTimeSessionWindows.with_gap(Time.milliseconds(25))
TO_THE_END: Final = GlobalWindows.create_with_end_of_stream_trigger()

Branches = dict[str, DataStream]
"""By uid, what a program gives of each of its branches."""


class TenMsApart(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return 10 * (value if isinstance(value, int) else value.number)


class EveryTenthIsOld(TimestampAssigner):
    """Numbers are 10 ms apart, but every tenth is of the beginning."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        number = value if isinstance(value, int) else value.number
        return number * 10 if number % 10 else 1


class AtOnce(WatermarkGenerator):
    """Behind each record nothing older is said to come."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


def times(assigner: TimestampAssigner) -> WatermarkStrategy:
    return WatermarkStrategy.for_generator(AtOnce).with_timestamp_assigner(assigner)


class Contents(ProcessWindowFunction[Any, Any, Any, Any]):
    """All of a window, and state of all windows of its key."""

    def process(
        self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterator[str]:
        seen = context.global_state().get_list_state(ListStateDescriptor("seen", ANY))
        contents = list(elements)
        seen.add(Seat(len(contents), "W"))
        count = len(list(seen.get()))
        yield f"{shown(key)} {context.window()} {' '.join(map(shown, contents))}: firing {count}"


class Firings(Contents):
    """The same, and state of the window itself."""

    def process(
        self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterator[str]:
        firings = context.window_state().get_state(ValueStateDescriptor("firings", Types.LONG()))
        firings.update((firings.value() or 0) + 1)
        for text in super().process(key, context, elements):
            yield f"{text}, {firings.value()} of the window"

    def clear(self, context: ProcessWindowFunction.Context[Any]) -> None:
        context.window_state().get_state(ValueStateDescriptor("firings", Types.LONG())).clear()


class AllContents(ProcessAllWindowFunction[Any, Any, Any]):
    def process(
        self, context: ProcessAllWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterator[str]:
        yield f"{context.window()} {' '.join(map(shown, elements))}"


class OfProcessingTime(ProcessWindowFunction[Any, Any, Any, Any]):
    """The number of records, for nobody knows the times."""

    def __init__(self, run: str) -> None:
        self._run = run

    def process(
        self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterator[str]:
        FIRED[self._run].add_one()
        yield f"{shown(key)} {sorted(elements)}"


class Pair(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Any:
        yield f"{left} {shown(right)} at {ctx.get_timestamp()}"


class Sides(CoGroupFunction[Any, Any, Any]):
    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Iterator[str]:
        yield f"{sorted(first)} {sorted(map(shown, second))}"


def key_of(number: int) -> int:
    return number % KEY_COUNT


def record_windows(numbers: DataStream, late: DataStream) -> Branches:
    """Windows that call functions of users. `numbers` are in order, of `late` every tenth is late."""
    keyed = numbers.key_by(key_of, key_type=Types.INT())
    with_gaps = numbers.filter(lambda n: n % 6 < 4).set_parallelism(1).key_by(lambda n: "all")
    by_row = numbers.key_by(lambda n: Row(key=n % 2, text="row"))
    of_late = late.key_by(key_of, key_type=Types.INT()).window(TUMBLING)
    lateness = of_late.allowed_lateness(60).side_output_late_data(LATE)
    continuous = lateness.trigger(ContinuousEventTimeTrigger.of(Time.milliseconds(50)))
    tumbling = continuous.evictor(CountEvictor.of(4)).process(Firings(), Types.STRING())
    any_late = numbers.map(lambda n: Instant(n, 0)).set_parallelism(1).uid("instants")
    return {
        "tumbling with lateness": tumbling,
        "tumbling in two halves": keyed.window(TUMBLING).reduce(
            Larger(), window_function=Contents(), output_type=Types.STRING()
        ),
        "sliding": keyed.window(SLIDING).process(Firings(), Types.STRING()),
        "sliding of rows": by_row.window(SLIDING).aggregate(
            Mean(is_row=True), accumulator_type=ANY, output_type=ANY
        ),
        "sessions": with_gaps.window(SESSIONS).process(Contents(), Types.STRING()),
        "sessions in two halves": with_gaps.window(SESSIONS).aggregate(
            Mean(), window_function=Contents(), accumulator_type=PAIR, output_type=Types.STRING()
        ),
        "counted": keyed.count_window(7).process(Firings(), Types.STRING()),
        "counted and sliding": by_row.count_window(6, 4).process(Contents(), Types.STRING()),
        "global": keyed.window(GlobalWindows.create())
        .trigger(PurgingTrigger.of(CountTrigger.of(7)))
        .process(Contents(), Types.STRING()),
        "delta": keyed.window(GlobalWindows.create())
        .trigger(DeltaTrigger.of(13, lambda old, new: new - old, Types.INT()))
        .process(Contents(), Types.STRING()),
        "of all": any_late.window_all(TUMBLING)
        .side_output_late_data(LATE_ANY)
        .process(AllContents(), Types.STRING()),
    }


def processing_time_windows(numbers: DataStream, run: str) -> Branches:
    """Windows that are due when the savepoint is there; nothing comes into them behind it."""
    keyed = numbers.filter(lambda n: n < SAVED).key_by(key_of, key_type=Types.INT())
    span = Time.milliseconds(SPAN_MS)
    return {
        "tumbling in processing time": keyed.window(TumblingProcessingTimeWindows.of(span)).process(
            OfProcessingTime(run), Types.STRING()
        ),
        "sessions in processing time": keyed.window(
            ProcessingTimeSessionWindows.with_gap(span)
        ).process(OfProcessingTime(run), Types.STRING()),
        "timed out": keyed.window(GlobalWindows.create())
        .trigger(ProcessingTimeoutTrigger.of(CountTrigger.of(SAVED), Duration.of_millis(SPAN_MS)))
        .process(OfProcessingTime(run), Types.STRING()),
    }


def columnar_windows(rows: DataStream, late_rows: DataStream) -> Branches:
    """Windows by built-in aggregates, and those that give whole rows."""
    keyed, late = rows.key_by("key"), late_rows.key_by("text")
    with_gaps = rows.filter(col("rate") < 2.0).set_parallelism(1).key_by("key", "text")
    mergeable = (agg.count(), agg.sum("number"), agg.mean("number"), agg.min("number"))
    more = (agg.max("rate"), agg.first("number"), agg.last("number"), agg.quantile("rate", 0.5))
    return {
        "aggregates": keyed.window(TUMBLING).aggregate(*mergeable),
        "aggregates in slices": keyed.window(SLIDING).aggregate(
            *mergeable, agg.count_distinct("text"), agg.count().where(col("number") > 20).alias("n")
        ),
        "aggregates of sessions": with_gaps.window(SESSIONS).aggregate(*mergeable),
        "aggregates to the end": keyed.window(TO_THE_END).aggregate(*mergeable),
        "aggregates of all": rows.window_all(TUMBLING).aggregate(*mergeable),
        "aggregates with lateness": late.window(TUMBLING)
        .allowed_lateness(60)
        .side_output_late_data(LATE_ROWS)
        .aggregate(*mergeable, *more),
        "rows with the largest": keyed.window(TUMBLING).rows_with_max("number"),
        "rows with the smallest": rows.window_all(TUMBLING).rows_with_min("number"),
        "largest rows": keyed.window(TUMBLING).largest_rows(2, "rate", "number"),
        "last rows": keyed.window(TO_THE_END).largest_rows(3, "number"),
    }


def joins(numbers: DataStream, rows: DataStream) -> Branches:
    """Joins of numbers with a half of them."""
    seats = numbers.filter(lambda n: n % 2 == 0).map(lambda n: Seat(n, "J")).set_parallelism(1)
    seats = seats.uid("seats")
    others = rows.filter(col("number") > 20).select(
        col("key").alias("other"), col("number").alias("seen")
    )
    others = others.set_parallelism(1)
    keyed = numbers.key_by(key_of, key_type=Types.INT())
    keyed_seats = seats.key_by(lambda seat: seat.row % KEY_COUNT, key_type=Types.INT())
    lower, upper = Time.milliseconds(-30), Time.milliseconds(90)
    by_key, by_other = rows.key_by("key"), others.key_by("other")
    return {
        "interval join": keyed.interval_join(keyed_seats)
        .between(lower, upper)
        .process(Pair(), Types.STRING()),
        "window join": numbers.join(seats)
        .where(key_of, Types.INT())
        .equal_to(lambda seat: seat.row % KEY_COUNT, key_type=Types.INT())
        .window(TUMBLING)
        .apply(lambda one, other: f"{one} {other}", Types.STRING()),
        "co-group": numbers.co_group(seats)
        .where(key_of, Types.INT())
        .equal_to(lambda seat: seat.row % KEY_COUNT, key_type=Types.INT())
        .window(SESSIONS)
        .apply(Sides(), Types.STRING()),
        "rows joined for ever": by_key.join_rows(by_other),
        "rows joined in windows": by_key.join_rows(by_other, TUMBLING),
    }
