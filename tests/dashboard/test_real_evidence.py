"""“Why is it slow” before jobs of a real cluster that are slow for one cause each: the page names it."""

import gc
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from headrace import StreamExecutionEnvironment, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.types.type_info import Types
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.state import ValueStateDescriptor
from headrace.testing.minicluster_executor import MiniClusterExecutor
from tests.dashboard.watched_page import WatchedPage

pytestmark = pytest.mark.browser

SETTINGS = {
    "rest.enabled": "true",
    "rest.port": "0",
    "rest.authentication": "none",
    "web.refresh-interval": "500 ms",
    "metrics.fetcher.update-interval": "500 ms",
    "execution.checkpointing.interval": "500 ms",
}
HOT_KEY, KEYS = "the hot one", 16


class LastOfKey(KeyedProcessFunction):
    """Keeps what it saw last of each key, and works for each record; the hot key's values are long."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._last = runtime_context.get_state(ValueStateDescriptor("last", Types.STRING()))

    def process_element(self, value: str, ctx: Any) -> Any:
        self._last.update(value * (50 if value == HOT_KEY else 1))
        wait(0.001)
        yield value


def wait(seconds: float) -> None:
    """Take some time without the interpreter's lock, for which all tasks of the process would wait, and look busy."""
    threading.Event().wait(seconds)


def key_at(index: int) -> str:
    """Return the hot key for 19 of 20 records."""
    return HOT_KEY if index % 20 else f"key {index // 20 % KEYS}"


def collect_garbage(number: int) -> int:
    """Work with a collection of all that lives, as a program does that calls it too often."""
    gc.collect()
    return number


def work_long(number: int) -> int:
    wait(0.6)
    return number


def source_of(env: StreamExecutionEnvironment, name: str, function: Any, **more: Any) -> Any:
    source = DataGeneratorSource(function, **more)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), name)


@pytest.fixture
def executor() -> Iterator[MiniClusterExecutor]:
    with MiniClusterExecutor(slot_count=2, settings=SETTINGS) as found:
        yield found


def environment(parallelism: int) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    return env


def open_diagnosis(
    executor: MiniClusterExecutor, watched: WatchedPage, client: JobClient, vertex: str
) -> Locator:
    """Open the page of a job, wait until it names the vertex, and return its evidence."""
    watched.open(executor.rest_address, f"/job/{client.get_job_id()}/slow")
    headline = watched.page.locator(".headline")
    expect(headline).to_have_text(re.compile(f"“{vertex}.*” is the bottleneck"))
    return watched.page.locator(".evidence")


def test_a_hot_key_is_named(executor: MiniClusterExecutor, watched: WatchedPage) -> None:
    env = environment(2)
    # Twice what the hot key's subtask takes: a source without a rate would be as busy as that, by turns.
    words = source_of(env, "words", key_at, type_info=Types.STRING(), rows_per_second=4_000)
    keyed = words.key_by(lambda word: word, key_type=Types.STRING())
    keyed.process(LastOfKey(), output_type=Types.STRING()).name("last").filter(
        lambda word: not word
    ).print()
    client = env.execute_async("a hot key")
    evidence = open_diagnosis(executor, watched, client, "last")
    page = watched.page
    expect(evidence).to_contain_text(re.compile(r"has received 9\d(\.\d)? ?% of the records"))
    expect(evidence).to_contain_text("some keys are hot")
    page.get_by_role("button", name="Count them").click()
    keys = page.get_by_role("table", name="Keys with the most bytes")
    expect(keys.locator("tbody tr").first).to_contain_text(HOT_KEY)
    client.cancel().result(30)
    assert watched.problems == []


def test_a_garbage_collector_that_takes_the_time_is_named(
    executor: MiniClusterExecutor, watched: WatchedPage
) -> None:
    env = environment(1)
    numbers = source_of(env, "numbers", lambda index: index, type_info=Types.LONG()).rebalance()
    numbers.map(collect_garbage, output_type=Types.LONG()).name("collects").filter(
        lambda number: number < 0
    ).print()
    client = env.execute_async("much garbage")
    evidence = open_diagnosis(executor, watched, client, "collects")
    expect(evidence).to_contain_text(
        re.compile(r"TaskManager \S+ collects garbage [1-9]\d\d ms of each second")
    )
    client.cancel().result(30)
    assert watched.problems == []


def test_barriers_that_are_held_up_are_named(
    executor: MiniClusterExecutor, watched: WatchedPage
) -> None:
    env = environment(1)
    # The barrier of one input waits behind records that take long, that of the other behind few.
    crowded = source_of(
        env, "crowded", lambda index: index, type_info=Types.LONG(), rows_per_second=10
    )
    empty = source_of(
        env, "empty", lambda index: index, type_info=Types.LONG(), rows_per_second=0.1
    )
    crowded.union(empty).map(work_long, output_type=Types.LONG()).name("merge").filter(
        lambda number: number < 0
    ).print()
    client = env.execute_async("barriers behind records")
    evidence = open_diagnosis(executor, watched, client, "merge")
    expect(evidence).to_contain_text(re.compile(r"In checkpoint \d+, .*it aligned for \d"))
    client.cancel().result(30)
    assert watched.problems == []
