"""The dashboard before jobs that really run, in a cluster of this process."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from headrace import StreamExecutionEnvironment, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.types.type_info import Types
from headrace.functions.watermarks import TimestampAssigner
from headrace.rest.client import RestClient
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
from tests.dashboard.watched_page import WatchedPage
from tests.integration.rest.counting_program import Program, await_running

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
    rest, history = (
        RestClient(executor.rest_address, ""),
        f"/jobs/{client.get_job_id()}/metrics-history",
    )
    # The first point comes after some seconds, and rates need two.
    wait_until(lambda: len(rest.get(history)["timestamps"]) >= 2, what="two points of metrics")
    client.cancel().result(30)
    expect(watched.page.locator(".job-head .state")).to_have_text("CANCELED")
    over_time = watched.page.get_by_role("region", name="Metrics over time")
    expect(over_time.locator(".chart canvas").first).to_be_visible(timeout=FIGURES_MS)
    expect(over_time).to_contain_text("Busy, mean of the subtasks")


def shown_state(address: str, *arguments: str) -> dict[str, Any]:
    """Return what `headrace state` prints as JSON."""
    command = [sys.executable, "-m", "headrace", "state", "-m", address, "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def snapshots_of(rest: RestClient, program: Program) -> list[int]:
    return [one["id"] for one in rest.get(f"{program.job}/state")["snapshots"]]


def test_state_of_a_running_job_is_read_and_a_snapshot_is_edited(
    executor: MiniClusterExecutor, watched: WatchedPage, tmp_path: Path
) -> None:
    folders = {"execution.checkpointing.savepoint-dir": str(tmp_path / "savepoints")}
    program = Program("state in a browser", tmp_path, settings=folders)
    rest = RestClient(executor.rest_address, "")
    await_running(rest, program.job)
    program.gate.open_to(40)
    state = program.client.state()
    wait_until(lambda: state.live("count", "count").rows.num_rows == 4)
    number = program.client.trigger_checkpoint().result(60)
    wait_until(lambda: number in snapshots_of(rest, program))
    page = watched.page
    watched.open(executor.rest_address, f"{program.job.replace('jobs', 'job')}/state")
    page.get_by_role("link", name="count", exact=True).first.click()
    states = page.get_by_role("table", name="States")
    states.get_by_role("link", name="count", exact=True).click(timeout=FIGURES_MS)
    page.get_by_role("button", name="Read rows").click()
    expect(page.get_by_role("table", name="Rows, 4")).to_be_visible(timeout=FIGURES_MS)
    job_id = str(program.client.get_job_id())
    live = shown_state(executor.rest_address, job_id, "count", "count")
    stored = shown_state(executor.rest_address, "--snapshot", str(number), job_id, "count", "count")
    assert len(live["rows"]["rows"]) == len(stored["rows"]["rows"]) == 4
    for figures in (live["figures"], stored["figures"]):
        assert len(figures["keys"]) == 4
        assert sum(one["rows"] for one in figures["key-groups"]) == 4
    page.get_by_role("combobox", name="As of").select_option(str(number))
    page.get_by_role("button", name="Read rows").click()
    rows = page.get_by_role("table", name="Rows, 4")
    rows.get_by_role("button", name="Edit").first.click(timeout=FIGURES_MS)
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Value").fill("1000")
    dialog.get_by_role("button", name="Add to the edits").click()
    page.get_by_role("textbox", name="Reason").fill("a test")
    page.get_by_role("button", name="Write a new savepoint with 1 edit").click()
    expect(page.get_by_text("The new savepoint is written")).to_be_visible(timeout=FIGURES_MS)
    expect(page.get_by_text("1 changed, 0 removed")).to_be_visible()
    assert len(list((tmp_path / "savepoints").iterdir())) == 1
    assert watched.problems == []
    program.client.cancel().result(30)


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
        "The watermark is held back by subtask 0, split records_0_of_1 of “Source: late",
        timeout=FIGURES_MS,
    )
    client.cancel().result(30)
