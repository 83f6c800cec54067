"""The jobs of a web shop, which the pictures of the documentation show: `headrace run shop.py` in a folder of its own.

    orders_by_customer   a guest makes most orders: its subtask is busy, all others wait
    visits_per_page      the app tells next to no visits any more, so that the watermark stands and no window fires
    payments             one cannot be read: the job restarts
    report_of_yesterday  comes to its end, and has more to do in its middle

The file `go_on`, written into the folder, names a savepoint from which orders_by_customer goes on.
"""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from headrace import Row, StreamExecutionEnvironment, Time, Types, WatermarkStrategy
from headrace.common import Configuration, JobClient
from headrace.common.watermark_strategy import TimestampAssigner
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import DataStream, KeyedProcessFunction, RuntimeContext, WindowFunction
from headrace.datastream.state import MapStateDescriptor, ValueStateDescriptor
from headrace.datastream.window import TumblingEventTimeWindows
from testkit.waiting import wait_until

BEGUN_MS: Final = int(time.time() * 1000)
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
ORDERS_PER_SECOND = 3_000
PAYMENTS_PER_SECOND, UNREADABLE_PAYMENT = 100, 300
BASKETS_PER_SECOND, BASKETS = 400, 20_000
STREETS = ("Mill Lane", "Headrace Way", "Weir Street", "Lock Road", "Sluice Court")
SUSPICIOUS = [f"{number} {street}" for number, street in enumerate(STREETS, 11)]

ORDER = Types.ROW_NAMED(
    ["customer", "product", "amount", "address", "at"],
    [Types.STRING(), Types.STRING(), Types.DOUBLE(), Types.STRING(), Types.LONG()],
)
ACCOUNT = Types.ROW_NAMED(["orders", "total"], [Types.LONG(), Types.DOUBLE()])
RISK = Types.ROW_NAMED(["customer", "distance"], [Types.STRING(), Types.INT()])
VISIT = Types.ROW_NAMED(["page", "at"], [Types.STRING(), Types.LONG()])
BASKET = Types.ROW_NAMED(["shop", "amount", "at"], [Types.STRING(), Types.DOUBLE(), Types.LONG()])
COUNT = Types.ROW_NAMED(["key", "count"], [Types.STRING(), Types.LONG()])


class ByTime(TimestampAssigner):
    """The event time of a record is its field `at`."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value.at


class CountPerWindow(WindowFunction[Row, Row, str, Any]):
    """Counts the records of a key in a window."""

    def apply(self, key: str, window: Any, inputs: Iterable[Row]) -> Iterable[Row]:
        yield Row(key, len(list(inputs)))


class EnrichWithCustomer(KeyedProcessFunction):
    """Keeps an account and the products of each customer, and compares the address with suspicious ones."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._account = runtime_context.get_state(ValueStateDescriptor("account", ACCOUNT))
        self._products = runtime_context.get_map_state(
            MapStateDescriptor("products", Types.STRING(), Types.LONG())
        )

    def process_element(self, value: Row, ctx: Any) -> Iterator[Row]:
        account = self._account.value() or Row(0, 0.0)
        self._account.update(Row(account[0] + 1, account[1] + value.amount))
        self._products.put(value.product, (self._products.get(value.product) or 0) + 1)
        # A customer without an order for an hour is forgotten.
        ctx.timer_service().register_event_time_timer(value.at - value.at % 60_000 + HOUR_MS)
        yield Row(customer=value.customer, distance=least_distance(value.address))


def least_distance(address: str) -> int:
    return min(edit_distance(address, other) for other in SUSPICIOUS)


def edit_distance(left: str, right: str) -> int:
    """Count the letters in which two texts differ at least."""
    row = list(range(len(right) + 1))
    for place, letter in enumerate(left, 1):
        before, row[0] = row[0], place
        for other in range(1, len(right) + 1):
            before, row[other] = (
                row[other],
                min(row[other] + 1, row[other - 1] + 1, before + (letter != right[other - 1])),
            )
    return row[-1]


def order_at(index: int) -> Row:
    """Return the order of an index: seven of ten are the guest's, and no customer else has many."""
    customer = "guest" if index % 10 < 7 else f"customer {index * 7919 % 400:03d}"
    address = f"{index % 90 + 10} {STREETS[index % 5]}, Flat {index % 9 + 1}"
    at = BEGUN_MS + index * 1000 // ORDERS_PER_SECOND
    return Row(
        customer=customer,
        product=f"product {index * 31 % 5_000:04d}",
        amount=index % 97 + 0.5,
        address=address,
        at=at,
    )


def visit_at(index: int, per_second: float) -> Row:
    return Row(page=f"/page/{index % 20}", at=BEGUN_MS + int(index * 1000 / per_second))


def payment_at(index: int) -> str:
    return f"{index};guest;" if index == UNREADABLE_PAYMENT else f"{index};guest;{index % 97}.50"


def parse_payment(line: str) -> float:
    _, _, amount = line.split(";")
    return float(amount)


def basket_at(index: int) -> Row:
    at = BEGUN_MS - DAY_MS + index * DAY_MS // BASKETS
    return Row(shop=f"shop {index % 8}", amount=float(index % 50), at=at)


def check_basket(basket: Row) -> Row:
    """Look longer at the baskets of the middle of the day."""
    hour = (basket.at - BEGUN_MS + DAY_MS) // HOUR_MS
    for _ in range(2 if 9 <= hour < 17 else 1):
        edit_distance(f"{basket.shop}: {basket.amount}", SUSPICIOUS[0])
    return basket


def environment(parallelism: int) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    return env


def in_order(env: StreamExecutionEnvironment, source: DataGeneratorSource, name: str) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByTime())
    return env.from_source(source, strategy, name).uid(name)


def orders_by_customer(env: StreamExecutionEnvironment) -> JobClient:
    source = DataGeneratorSource(order_at, type_info=ORDER, rows_per_second=ORDERS_PER_SECOND)
    enriched = (
        in_order(env, source, "orders").key_by("customer").process(EnrichWithCustomer(), RISK)
    )
    enriched = enriched.name("enrich with customer").uid("enrich")
    enriched.filter(lambda risk: risk.distance < 2).name("suspicious").uid("suspicious").print(
        "suspicious"
    )
    return env.execute_async("orders_by_customer")


def visits_per_page(env: StreamExecutionEnvironment) -> None:
    streams = [
        in_order(
            env,
            DataGeneratorSource(
                lambda index, rate=rate: visit_at(index, rate),
                type_info=VISIT,
                rows_per_second=rate,
            ),
            name,
        )
        for name, rate in (("web visits", 50.0), ("app visits", 0.02))
    ]
    windows = (
        streams[0]
        .union(streams[1])
        .key_by("page")
        .window(TumblingEventTimeWindows.of(Time.minutes(1)))
    )
    windows.apply(CountPerWindow(), COUNT).name("visits per page").print("visits")
    env.execute_async("visits_per_page")


def payments(env: StreamExecutionEnvironment) -> None:
    source = DataGeneratorSource(
        payment_at, type_info=Types.STRING(), rows_per_second=PAYMENTS_PER_SECOND
    )
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "payments").rebalance()
    lines.map(parse_payment, Types.DOUBLE()).name("parse").filter(
        lambda amount: amount > 1e6
    ).print()
    env.execute_async("payments")


def report_of_yesterday(env: StreamExecutionEnvironment) -> None:
    source = DataGeneratorSource(
        basket_at, BASKETS, type_info=BASKET, rows_per_second=BASKETS_PER_SECOND
    )
    checked = in_order(env, source, "baskets").rebalance().map(check_basket, BASKET).name("check")
    windows = checked.key_by("shop").window(TumblingEventTimeWindows.of(Time.hours(1)))
    windows.apply(CountPerWindow(), COUNT).name("baskets per hour").print("report")
    env.execute_async("report_of_yesterday")


def main() -> None:
    """Submit the jobs, wait for the savepoint, and go on from it for ever."""
    orders_by_customer(environment(3))
    visits_per_page(environment(1))
    payments(environment(1))
    report_of_yesterday(environment(1))
    go_on = Path("go_on")
    wait_until(go_on.exists, 3_600, "a savepoint to go on from")
    env = environment(3)
    env.configure(Configuration.from_dict({"execution.state-recovery.path": go_on.read_text()}))
    orders_by_customer(env).get_job_execution_result().result()


if __name__ == "__main__":
    main()
