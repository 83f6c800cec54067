"""Alerts by rules that change while the job runs, with names that a slow service gives.

Each departure is sent to a service that knows airlines by their codes: many questions are on their way at a time, a
question that fails is asked again, and results keep their order. Rules say from when on which delay is worth an alert.
They are broadcast to every subtask; a departure waits, with a timer, until event time says that all rules up to its
own time are there. So the alerts do not depend on what arrives first.

Run it:
    headrace run examples/late_departures_by_rule.py
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from headrace.common import Row, Time, Types, WatermarkStrategy
from headrace.common.watermark_strategy import TimestampAssigner
from headrace.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    KeyedBroadcastProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from headrace.datastream.async_retry_predicates import has_exception_predicate
from headrace.datastream.state import ListStateDescriptor, MapStateDescriptor

DEPARTURE = Types.ROW_NAMED(
    ["minute", "airport", "airline", "delay"],
    [Types.LONG(), Types.STRING(), Types.STRING(), Types.INT()],
)
RULE = Types.ROW_NAMED(["minute", "airport", "limit"], [Types.LONG(), Types.STRING(), Types.INT()])
RULES = MapStateDescriptor("limit by airport and minute", Types.STRING(), Types.INT())
MS_PER_MINUTE = 60_000
AIRLINES = {"UA": "United", "B6": "JetBlue", "DL": "Delta"}


class MinuteOfRow(TimestampAssigner):
    """Event time is the minute of the day."""

    def extract_timestamp(self, value: Row, record_timestamp: int) -> int:
        return value.minute * MS_PER_MINUTE


class AirlineNames(AsyncFunction[Row, Row]):
    """Stands for a service behind a network: slow, and busy when it is asked for the first time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.has_answered = False

    async def async_invoke(self, value: Row) -> list[Row]:
        await asyncio.sleep(0.02)
        if not self.has_answered:
            self.has_answered = True
            raise ConnectionError("try again")
        return [Row(**{**value.as_dict(), "airline": AIRLINES[value.airline]})]


class LateByRule(KeyedBroadcastProcessFunction[str, Row, Row, str]):
    """Keyed by airport. Departures wait in state until event time has reached them."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", DEPARTURE))

    def process_element(
        self, value: Row, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> None:
        self.waiting.add(value)
        ctx.timer_service().register_event_time_timer(value.minute * MS_PER_MINUTE)

    def process_broadcast_element(
        self, value: Row, ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        ctx.get_broadcast_state(RULES)[f"{value.airport} {value.minute:04}"] = value.limit

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterable[str]:
        minute, rules = timestamp // MS_PER_MINUTE, ctx.get_broadcast_state(RULES)
        departures: list[Any] = list(self.waiting.get())
        self.waiting.update([one for one in departures if one.minute > minute])
        for one in departures:
            known = [
                key for key in rules if f"{one.airport} " <= key <= f"{one.airport} {minute:04}"
            ]
            if one.minute == minute and known and one.delay > (rules[max(known)] or 0):
                yield f"{minute:04} {one.airport}: {one.airline} is {one.delay} min late"


env = StreamExecutionEnvironment.get_execution_environment()
by_minute = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(MinuteOfRow())
departures = env.from_collection(
    [
        Row(minute=1, airport="EWR", airline="UA", delay=20),
        Row(minute=2, airport="JFK", airline="B6", delay=12),
        Row(minute=5, airport="EWR", airline="UA", delay=20),
        Row(minute=6, airport="JFK", airline="DL", delay=90),
        Row(minute=9, airport="EWR", airline="DL", delay=61),
    ],
    DEPARTURE,
).assign_timestamps_and_watermarks(by_minute)
rules = env.from_collection(
    [
        Row(minute=0, airport="EWR", limit=15),
        Row(minute=0, airport="JFK", limit=60),
        Row(minute=4, airport="EWR", limit=60),
    ],
    RULE,
).assign_timestamps_and_watermarks(by_minute)

named = AsyncDataStream.ordered_wait_with_retry(
    departures,
    AirlineNames(),
    Time.seconds(10),
    AsyncRetryStrategy.fixed_delay(3, 50, None, has_exception_predicate),
    output_type=DEPARTURE,
)
alerts = (
    named.key_by(lambda row: row.airport, Types.STRING())
    .connect(rules.broadcast(RULES))
    .process(LateByRule(), Types.STRING())
)
alerts.print()
env.execute("late departures by rule")
