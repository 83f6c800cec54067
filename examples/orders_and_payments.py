"""Two streams brought together: orders and what was paid for them.

    orders ───┬─► interval join: each payment with its order, if it came within 30 minutes ──► paid
              │        └─ what comes too late for event time itself goes to a side output
    payments ─┼─► co-group by the hour: orders that nobody paid in their hour ──► unpaid
              │
    orders ───┴─► one window per customer, of which an evictor keeps the last 3 orders ──► averages

Run it:
    headrace run examples/orders_and_payments.py
"""

from collections.abc import Iterable
from typing import Any

from headrace import Row, StreamExecutionEnvironment, Time, Types, WatermarkStrategy
from headrace.common.watermark_strategy import TimestampAssigner
from headrace.datastream import CoGroupFunction, DataStream, ProcessJoinFunction, WindowFunction
from headrace.datastream.window import (
    CountEvictor,
    CountTrigger,
    GlobalWindows,
    TumblingEventTimeWindows,
)

MINUTE_MS = 60_000

ORDER = Types.ROW_NAMED(
    ["order", "customer", "amount", "minute"],
    [Types.INT(), Types.STRING(), Types.INT(), Types.INT()],
)
PAYMENT = Types.ROW_NAMED(["order", "minute"], [Types.INT(), Types.INT()])

ORDERS = [
    (1, "ada", 30, 0),
    (2, "bob", 12, 5),
    (3, "ada", 60, 20),
    (4, "ada", 90, 50),
    (5, "bob", 18, 70),
    (6, "ada", 120, 80),
]
PAYMENTS = [(2, 7), (1, 12), (4, 75), (3, 77), (5, 90)]


class ByMinute(TimestampAssigner):
    """The event time of orders and payments."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value.minute * MINUTE_MS


class Paid(ProcessJoinFunction[Row, Row, Row]):
    """How long a payment took."""

    def process_element(self, left: Row, right: Row, ctx: Any) -> Iterable[Row]:
        minutes = (ctx.get_right_timestamp() - ctx.get_left_timestamp()) // MINUTE_MS
        yield Row(left.order, minutes)


class Unpaid(CoGroupFunction[Row, Row, Row]):
    """The orders of an hour and key beside which there is no payment: what is missing from an inner join."""

    def co_group(self, first: Iterable[Row], second: Iterable[Row]) -> Iterable[Row]:
        if not list(second):
            yield from (Row(order.order, order.amount) for order in first)


class Average(WindowFunction[Row, Row, str, Any]):
    """The mean amount of the orders that a customer's window still holds."""

    def apply(self, key: str, window: Any, inputs: Iterable[Row]) -> Iterable[Row]:
        amounts = [order.amount for order in inputs]
        yield Row(key, sum(amounts) / len(amounts))


def in_event_time(stream: DataStream) -> DataStream:
    """Timestamps and watermarks for records that come in order: by one task, so that they stay in order."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByMinute())
    return stream.assign_timestamps_and_watermarks(strategy).set_parallelism(1)


def paid(orders: DataStream, payments: DataStream) -> DataStream:
    """(order, minutes until it was paid), for orders paid within half an hour."""
    joined = orders.key_by("order").interval_join(payments.key_by("order"))
    return joined.between(Time.minutes(0), Time.minutes(30)).process(
        Paid(), Types.ROW_NAMED(["order", "minutes"], [Types.INT(), Types.INT()])
    )


def unpaid(orders: DataStream, payments: DataStream) -> DataStream:
    """(order, amount) of orders that were not paid in the hour in which they were made."""
    together = orders.co_group(payments).where("order").equal_to("order")
    return together.window(TumblingEventTimeWindows.of(Time.hours(1))).apply(
        Unpaid(), Types.ROW_NAMED(["order", "amount"], [Types.INT(), Types.INT()])
    )


def averages(orders: DataStream) -> DataStream:
    """(customer, mean amount of the last three orders), with every order."""
    windows = orders.key_by("customer").window(GlobalWindows.create())
    return (
        windows.trigger(CountTrigger.of(1))
        .evictor(CountEvictor.of(3))
        .apply(Average(), Types.ROW_NAMED(["customer", "mean"], [Types.STRING(), Types.DOUBLE()]))
    )


def main() -> None:
    """Print the three results, each under its name."""
    env = StreamExecutionEnvironment.get_execution_environment()
    orders = in_event_time(env.from_collection(ORDERS, ORDER))
    payments = in_event_time(env.from_collection(PAYMENTS, PAYMENT))
    paid(orders, payments).print("paid")
    unpaid(orders, payments).print("unpaid")
    averages(orders).print("average")
    env.execute("orders and payments")


if __name__ == "__main__":
    main()
