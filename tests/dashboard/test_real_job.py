"""The dashboard before jobs that really run, in a cluster of this process."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Locator, expect

from headrace import StreamExecutionEnvironment, WatermarkStrategy
from headrace.common import Configuration, Time
from headrace.connectors.datagen.source import DataGeneratorSource, IndexSequence
from headrace.core.types.type_info import Types
from headrace.datastream import DataStream, KeyedProcessFunction, MapFunction, RuntimeContext
from headrace.datastream.window import TumblingEventTimeWindows
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import Source, SourceReader
from headrace.functions.watermarks import TimestampAssigner
from headrace.rest.client import RestClient
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
from tests.dashboard.watched_page import WatchedPage
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.rest.counting_program import Program, await_running

pytestmark = pytest.mark.browser

SETTINGS = {
    "rest.enabled": "true",
    "rest.port": "0",
    "rest.authentication": "none",
    "web.refresh-interval": "500 ms",
    # Without checkpoints the page asks for them and is told that there are none.
    "execution.checkpointing.interval": "1 h",
}
# Figures of a job come some seconds after it has started.
FIGURES_MS = 60_000
DAY_MS = 86_400_000
SILENT_STEP = 10**10
SILENT_SPLIT = f"records_1_of_{SILENT_STEP}"
TOGETHER = threading.Barrier(2)
RESTARTS_IN_AN_HOUR = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1",
    "restart-strategy.fixed-delay.delay": "1 h",
}
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


class Itself(TimestampAssigner):
    """Takes a number for its time; small ones are of an earlier day."""

    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value if value >= DAY_MS else value + 1_600_000_000_000


class MovingSource(DataGeneratorSource):
    """Numbers that are times, each a millisecond after the last one, 50 a second."""

    def __init__(self) -> None:
        first = 1_700_000_000_000
        super().__init__(lambda index: first + index, type_info=Types.LONG(), rows_per_second=50)


class HalfSilentSource(MovingSource):
    """One subtask reads two splits, as after a restart with less parallelism; the second has no record for a year."""

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        reader = super().create_reader(context)
        splits = IndexSequence(0, 1), IndexSequence(1, SILENT_STEP)
        reader.restore_splits([msgspec.msgpack.encode(each) for each in splits])
        return reader


class HalfStandingSource(MovingSource):
    """Its last subtask has what a gate lets through, which is of an earlier day; the others go on."""

    def __init__(self, gate: str) -> None:
        super().__init__()
        self._gate = gate

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        if context.subtask_index < context.parallelism - 1:
            return super().create_reader(context)
        return GatedSource(self._gate, None).create_reader(context)


class Forward(KeyedProcessFunction):
    """Emits what it gets."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        yield value


class FailTogether(MapFunction):
    """Fails once every subtask has come to it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._index = runtime_context.get_index_of_this_subtask()

    def map(self, value: int) -> int:
        TOGETHER.wait(60)
        raise ValueError(f"subtask {self._index} refuses {value}")


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


def five_keys(number: int) -> int:
    return number % 5


def by_value(env: StreamExecutionEnvironment, source: Source, name: str) -> DataStream:
    """Return numbers that are their own event times, in order."""
    in_order = WatermarkStrategy.for_monotonous_timestamps()
    return env.from_source(source, in_order.with_timestamp_assigner(Itself()), name, Types.LONG())


def one_window(numbers: DataStream) -> None:
    """Put the numbers into windows that no watermark ends."""
    keyed = numbers.key_by(five_keys, key_type=Types.LONG())
    windows = keyed.window(TumblingEventTimeWindows.of(Time.days(1)))
    windows.reduce(lambda first, _: first).name("daily").print()


def holder_of(address: str, job_id: object, split: str) -> dict[str, Any]:
    """Return what REST tells of the subtask that reads a split."""
    subtasks = RestClient(address, "").get(f"/jobs/{job_id}/watermarks")["subtasks"]
    (found,) = [one for one in subtasks if split in [each["id"] for each in one["splits"]]]
    return found


def last_record_of(address: str, job_id: object, count: int) -> float:
    """Return when the one subtask that has read `count` records got the last of them."""
    told = RestClient(address, "").get(f"/jobs/{job_id}/watermarks")
    (one,) = [each for each in told["subtasks"] if each["records-read"] == count]
    return told["now"] - one["idle-time"]


def shown_ms(since: Locator) -> float:
    """Return the moment that the page says something has been so since, to the second."""
    expect(since).to_have_text(re.compile(r"^Since [-\d]+ [:\d]+, .+ ago\.$"))
    found = re.search(r"Since (\S+ \S+), ", since.inner_text())
    assert found is not None
    return datetime.fromisoformat(f"{found[1]}+00:00").timestamp() * 1000


def test_the_source_that_stands_is_named_with_its_last_record_s_time(
    executor: MiniClusterExecutor, watched: WatchedPage
) -> None:
    gate = GATES["stands"] = Gate(1)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    standing = by_value(env, GatedSource("stands", None), "standing")
    one_window(by_value(env, MovingSource(), "moving").union(standing))
    client = env.execute_async("a source that stands")
    watched.open(executor.rest_address, f"/job/{client.get_job_id()}/no-output")
    cause = watched.page.locator(".findings > li.cause", has_text="The watermark is held back by")
    expect(cause).to_contain_text("by subtask 0 of “Source: standing", timeout=FIGURES_MS)
    expect(cause).to_contain_text("behind the most advanced input. Windows fire with the slowest")
    # The source tells when its last record came as soon as it has waited for the next one for some seconds.
    expect(
        watched.page.locator(".findings > li", has_text="reads nothing any more")
    ).to_be_visible()
    last_record_ms = last_record_of(executor.rest_address, client.get_job_id(), gate.limit)
    assert abs(shown_ms(cause.locator(".since")) - last_record_ms) < 3_000
    assert watched.problems == []
    client.cancel().result(30)


def test_the_subtask_behind_other_vertices_that_holds_a_join_back_is_named_and_since_when(
    executor: MiniClusterExecutor, watched: WatchedPage
) -> None:
    GATES["half stands"] = gate = Gate(4)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)

    def processed(numbers: DataStream, name: str) -> DataStream:
        keyed = numbers.key_by(five_keys, key_type=Types.LONG())
        return keyed.process(Forward(), output_type=Types.LONG()).name(name)

    orders = processed(by_value(env, MovingSource(), "orders"), "enrich")
    payments = processed(by_value(env, HalfStandingSource("half stands"), "payments"), "clean")
    pairs = orders.join(payments).where(five_keys).equal_to(five_keys)
    pairs.window(TumblingEventTimeWindows.of(Time.days(1))).apply(lambda order, _: order).print()
    client = env.execute_async("a join that waits")
    watched.open(executor.rest_address, f"/job/{client.get_job_id()}/no-output")
    causes = watched.page.locator(".findings > li.cause", has_text="The watermark is held back by")
    # The join gets it of both subtasks of "clean", and these of the source.
    cause = causes.filter(has_text="by subtask 1 of “Source: payments")
    expect(cause).to_be_visible(timeout=FIGURES_MS)
    expect(cause).to_contain_text("behind the most advanced input")
    silent = watched.page.locator(".findings > li", has_text="1 subtask of “Source: payments")
    expect(silent).to_contain_text("Subtask 1 has waited longest for a record.")
    expect(causes).to_have_count(1)
    # The gate lets the subtask read every other of its numbers.
    last_record_ms = last_record_of(executor.rest_address, client.get_job_id(), gate.limit // 2)
    for finding in (cause, silent):
        assert abs(shown_ms(finding.locator(".since")) - last_record_ms) < 3_000
    cause.get_by_role("link", name="Its subtask 1").click()
    expect(watched.page.get_by_role("dialog")).to_be_visible()
    assert watched.problems == []
    client.cancel().result(30)


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


def test_the_split_that_gives_no_watermark_is_named_and_since_when(
    executor: MiniClusterExecutor, watched: WatchedPage
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    one_window(by_value(env, HalfSilentSource(), "half silent"))
    client = env.execute_async("a split without records")
    watched.open(executor.rest_address, f"/job/{client.get_job_id()}/no-output")
    cause = watched.page.locator(".findings > li.cause", has_text="The watermark is held back by")
    expect(cause).to_contain_text(
        f"by subtask 0, split {SILENT_SPLIT} of “Source: half silent", timeout=FIGURES_MS
    )
    expect(cause).to_contain_text("It has sent no watermark.")
    holder = holder_of(executor.rest_address, client.get_job_id(), SILENT_SPLIT)
    assert {each["id"]: each["watermark"] is None for each in holder["splits"]} == {
        SILENT_SPLIT: True,
        "records_0_of_1": False,
    }
    assert shown_ms(cause.locator(".since")) == holder["start-time"] // 1000 * 1000
    cause.get_by_role("link", name="Its subtask 0").click()
    expect(watched.page.get_by_role("dialog")).to_be_visible()
    assert watched.problems == []
    client.cancel().result(30)


def test_subtasks_that_fail_together_are_one_entry_of_the_exceptions(
    executor: MiniClusterExecutor, watched: WatchedPage
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    env.configure(Configuration.from_dict(RESTARTS_IN_AN_HOUR))
    source = DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=10)
    sequence = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    # Nothing is exchanged, so that the failure of one subtask ends no other.
    sequence.map(FailTogether(), output_type=Types.LONG()).name("refuse").print()
    client = env.execute_async("failing together")
    rest, path = RestClient(executor.rest_address, ""), f"/jobs/{client.get_job_id()}/exceptions"

    def entries() -> list[dict[str, Any]]:
        return rest.get(path)["exceptionHistory"]["entries"]

    wait_until(lambda: any(each["concurrentExceptions"] for each in entries()), what="a group")
    (entry,) = entries()
    (other,) = entry["concurrentExceptions"]
    tasks = [str(each["taskName"]) for each in (entry, other)]
    assert sorted(re.findall(r"\(\d/2\) - execution #0", " ".join(tasks))) == [
        "(1/2) - execution #0",
        "(2/2) - execution #0",
    ]
    said = [each["stacktrace"].partition(" (in operator")[0] for each in (entry, other)]
    assert sorted(said) == ["ValueError: subtask 0 refuses 0", "ValueError: subtask 1 refuses 1"]
    assert all(each["endpoint"] and each["taskManagerId"] for each in (entry, other))
    page = watched.page
    watched.open(executor.rest_address, f"/job/{client.get_job_id()}/exceptions")
    failures = page.locator(".exceptions > li")
    expect(failures).to_have_count(1)
    expect(failures.locator(".failure-message").first).to_have_text(said[0])
    page.get_by_text("1 other exception at the same time").click()
    grouped = failures.locator(".fold .failure")
    expect(grouped).to_have_count(1)
    expect(grouped.locator(".failure-message")).to_have_text(said[1])
    expect(grouped.locator(".user-line")).to_contain_text("test_real_job.py, line")
    expect(grouped).to_contain_text(other["taskName"])
    assert watched.problems == []
    client.cancel().result(30)
