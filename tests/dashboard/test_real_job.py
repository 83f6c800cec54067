"""The dashboard before jobs that really run, in a cluster of this process."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from headrace import StreamExecutionEnvironment, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.types.type_info import Types
from headrace.functions.watermarks import TimestampAssigner
from headrace.testing.minicluster_executor import MiniClusterExecutor
from tests.dashboard.watched_page import WatchedPage

pytestmark = pytest.mark.browser

SETTINGS = {
    "rest.enabled": "true",
    "rest.port": "0",
    "rest.authentication": "none",
    "web.refresh-interval": "500 ms",
}
# Figures of a job come some seconds after it has started.
FIGURES_MS = 60_000
PAIR = Types.TUPLE([Types.INT(), Types.LONG()])


@pytest.fixture
def executor() -> Iterator[MiniClusterExecutor]:
    with MiniClusterExecutor(slot_count=2, settings=SETTINGS) as found:
        yield found


def slowly(value: tuple[int, int]) -> tuple[int, int]:
    """Work for about a tenth of a millisecond."""
    sum(number * number for number in range(2_000))
    return value


class SecondField(TimestampAssigner):
    """Takes the time of a record from its second field."""

    def extract_timestamp(self, value: tuple[int, int], record_timestamp: int) -> int:
        return value[1]


def numbers(first_time: int, rows_per_second: float | None) -> DataGeneratorSource:
    return DataGeneratorSource(
        lambda index: (index % 5, first_time + index),
        type_info=PAIR,
        rows_per_second=rows_per_second,
    )


def test_the_slow_vertex_of_a_job_is_named(
    executor: MiniClusterExecutor, watched: WatchedPage
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    orders = env.from_source(numbers(0, None), WatermarkStrategy.no_watermarks(), "orders")
    orders.key_by(lambda value: value[0]).map(slowly).name("enrich").rebalance().filter(
        lambda value: value[1] < 0
    ).print()
    client = env.execute_async("slow")
    watched.open(executor.rest_address, f"/job/{client.get_job_id()}/slow")
    expect(watched.page.locator(".headline")).to_have_text(
        "“enrich” is the bottleneck", timeout=FIGURES_MS
    )
    expect(watched.page.locator(".evidence")).to_contain_text("“Source: orders")
    watched.page.get_by_role("link", name="Graph", exact=True).click()
    expect(watched.page.locator("g.edge.high, g.edge.low").first).to_contain_text("waits")
    client.cancel().result(30)
    expect(watched.page.locator(".job-head .state")).to_have_text("CANCELED")


def test_the_source_that_holds_the_watermark_back_is_named(
    executor: MiniClusterExecutor, watched: WatchedPage
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    early = env.from_source(numbers(1_700_000_000_000, 50), in_order, "early")
    late = env.from_source(numbers(1_600_000_000_000, 50), in_order, "late")
    early.union(late).key_by(lambda value: value[0]).map(lambda value: value).print()
    client = env.execute_async("late")
    watched.open(executor.rest_address, f"/job/{client.get_job_id()}/no-output")
    expect(watched.page.locator(".findings > li.cause").first).to_contain_text(
        "The watermark is held back by subtask 0 of “Source: late", timeout=FIGURES_MS
    )
    client.cancel().result(30)
