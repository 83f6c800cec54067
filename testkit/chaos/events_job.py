"""The events job: event time and two inputs, with every record accounted for.

    events ─┬─ keyBy ─ sessions that merge, with allowed lateness ─┬─ windows, a row per firing   "s"
            │                                                      └─ late events, a row per event  "l"
            ├─ keyBy ─ interval join with orders, a row per pair                                           "j"
            └─ keyBy ─ waits, with a timer, for the broadcast rules of its time, a row per event           "r"

Each source is one reader that emits watermarks after fixed records, so that every subtask sees records
and watermarks in one order: which events are late does not depend on chance, and `events_answer` knows them.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace.api.environment import StreamExecutionEnvironment
from headrace.api.streams.data_stream import DataStream
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.types.time_values import Time
from headrace.core.types.type_info import Types
from headrace.functions.joins import ProcessJoinFunction
from headrace.functions.process import (
    KeyedBroadcastProcessFunction,
    OutputTag,
    ProcessWindowFunction,
)
from headrace.functions.runtime_context import RuntimeContext
from headrace.functions.state import MapStateDescriptor
from headrace.functions.watermarks import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from headrace.functions.windowing.assigners import EventTimeSessionWindows
from headrace.functions.windows import TimeWindow
from testkit.chaos.events_answer import answer_of, on_time_place
from testkit.chaos.jobs import OUTPUT, ROW_TYPE, output_files
from testkit.chaos.records import (
    JOIN_AFTER_MS,
    JOIN_BEFORE_MS,
    LATENESS_MS,
    SESSION_GAP_MS,
    RecordKind,
    joined_row,
    late_row,
    rule_content,
    ruled_row,
    rules_of,
    session_row,
)

_LATE: Final = OutputTag("late", Types.LONG())
_RULES: Final = MapStateDescriptor("rules", Types.LONG(), Types.LONG())


@dataclass(frozen=True)
class EventsJob:
    """A job over `count` events at `rows_per_second`, with the orders and rules in their span of time."""

    count: int = 8_000
    rows_per_second: float = 2_000
    key_count: int = 32
    parallelism: int = 2

    @property
    def name(self) -> str:
        return "events"

    def build(self, env: StreamExecutionEnvironment, directory: Path) -> None:
        env.set_parallelism(self.parallelism)
        events = self._source(env, RecordKind.EVENTS)
        sessions = self._sessions(events)
        late = sessions.get_side_output(_LATE).map(_LateRow(self.key_count), output_type=ROW_TYPE)
        rows = sessions.union(late, self._joined(env, events), self._ruled(env, events))
        rows.rebalance().sink_to(output_files(directory / OUTPUT)).name("files").uid("files")

    def expected_rows(self) -> list[str]:
        return answer_of(self.count, self.key_count)

    def place_of(self, row: str) -> tuple[Hashable, int] | None:
        """Return the place of a row: timers of a key fire in order of time, except those of late events."""
        return on_time_place(row)

    def _source(self, env: StreamExecutionEnvironment, kind: RecordKind) -> DataStream:
        """Return one reader of one kind of records, with a rate at which all kinds end at the same time."""
        count = kind.count(self.count)
        rate = self.rows_per_second * count / self.count
        source = DataGeneratorSource(lambda index: index, count, Types.LONG(), rows_per_second=rate)
        strategy = WatermarkStrategy.for_generator(
            lambda: SaidWatermarks(kind)
        ).with_timestamp_assigner(TimeOf(kind))
        stream = env.from_source(source, strategy, kind.value, Types.LONG())
        return stream.set_parallelism(1).uid(kind.value)

    def _sessions(self, events: DataStream) -> DataStream:
        key_count = self.key_count
        return (
            events.key_by(lambda one: RecordKind.EVENTS.key(one, key_count), Types.LONG())
            .window(EventTimeSessionWindows.with_gap(Time.milliseconds(SESSION_GAP_MS)))
            .allowed_lateness(LATENESS_MS)
            .side_output_late_data(_LATE)
            .process(SessionRows(), output_type=ROW_TYPE)
            .uid("sessions")
        )

    def _joined(self, env: StreamExecutionEnvironment, events: DataStream) -> DataStream:
        key_count = self.key_count
        # The join's event time waits for the orders, so that lateness there would depend on chance.
        on_time = events.filter(lambda one: not RecordKind.EVENTS.is_behind(one))
        orders = self._source(env, RecordKind.ORDERS)
        return (
            on_time.key_by(lambda one: RecordKind.EVENTS.key(one, key_count), Types.LONG())
            .interval_join(
                orders.key_by(lambda one: RecordKind.ORDERS.key(one, key_count), Types.LONG())
            )
            .between(Time.milliseconds(-JOIN_BEFORE_MS), Time.milliseconds(JOIN_AFTER_MS))
            .process(JoinedRows(self.key_count), output_type=ROW_TYPE)
            .uid("joined")
        )

    def _ruled(self, env: StreamExecutionEnvironment, events: DataStream) -> DataStream:
        key_count = self.key_count
        rules = self._source(env, RecordKind.RULES)
        return (
            events.key_by(lambda one: RecordKind.EVENTS.key(one, key_count), Types.LONG())
            .connect(rules.broadcast(_RULES))
            .process(RuledRows(), output_type=ROW_TYPE)
            .uid("ruled")
        )


class TimeOf(TimestampAssigner):
    """Timestamp assigner: the record's number determines its time."""

    def __init__(self, kind: RecordKind) -> None:
        self._kind = kind

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return self._kind.time_ms(value)


class SaidWatermarks(WatermarkGenerator):
    """Watermark generator that advances event time after certain records, and at no other moment."""

    def __init__(self, kind: RecordKind) -> None:
        self._kind = kind

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        watermark = self._kind.watermark_behind(event)
        if watermark is not None:
            output.emit_watermark(watermark)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit nothing."""


class SessionRows(ProcessWindowFunction[int, str, int, TimeWindow]):
    """Emits a row each time that a session fires, with its present contents."""

    def process(
        self, key: int, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[int]
    ) -> Iterable[str]:
        window = context.window()
        yield session_row(key, window.start, window.end, sorted(elements))


class _LateRow:
    """Emits a row for an event that no session accepts any more."""

    def __init__(self, key_count: int) -> None:
        self._key_count = key_count

    def __call__(self, event: int) -> str:
        return late_row(RecordKind.EVENTS.key(event, self._key_count), event)


class JoinedRows(ProcessJoinFunction[int, int, str]):
    """Emits a row per pair."""

    def __init__(self, key_count: int) -> None:
        self._key_count = key_count

    def process_element(self, left: int, right: int, ctx: Any) -> Iterable[str]:
        yield joined_row(RecordKind.ORDERS.key(right, self._key_count), left, right)


class RuledRows(KeyedBroadcastProcessFunction[int, int, int, str]):
    """Holds events until event time shows that all rules up to their own time have arrived."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state."""
        self._waiting: Any = runtime_context.get_map_state(
            MapStateDescriptor("waiting", Types.LONG(), Types.LONG())
        )

    def process_element(self, value: int, ctx: Any) -> None:
        time_ms = RecordKind.EVENTS.time_ms(value)
        self._waiting.put(value, time_ms)
        ctx.timer_service().register_event_time_timer(time_ms)

    def process_broadcast_element(self, value: int, ctx: Any) -> None:
        ctx.get_broadcast_state(_RULES)[value] = rule_content(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        due = sorted(event for event, time_ms in self._waiting.items() if time_ms == timestamp)
        known = ctx.get_broadcast_state(_RULES)
        contents = [known.get(rule) for rule in rules_of(timestamp)]
        for event in due:
            self._waiting.remove(event)
            yield ruled_row(ctx.get_current_key(), event, contents)
