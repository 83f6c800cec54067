"""The files of examples/monitoring with Debian's Prometheus: it fetches from a real job, and every panel has data."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.cluster.minicluster import MiniCluster
from headrace.core.clock import SystemClock
from headrace.functions.sink import DiscardingSink
from headrace.functions.watermarks import TimestampAssigner
from testkit.ports import free_ports
from testkit.simulation.simulated_job import PacedSource
from tests.integration.programs.prometheus_server import (
    PrometheusServer,
    Series,
    chosen,
    interpolated,
    program_path,
    prometheus_server,
)

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "monitoring"
CONFIGURATION = FOLDER / "prometheus.yml"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana_dashboard.json").read_text("utf-8"))
TARGETS: list[tuple[str, dict[str, str]]] = [
    (panel["title"], target) for panel in DASHBOARD["panels"] for target in panel.get("targets", ())
]
ALL = {
    each["name"]: each["allValue"]
    for each in DASHBOARD["templating"]["list"]
    if each["type"] == "query"
}
JOB = "orders (of 2026)"


class Now(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return SystemClock().now_ms()


@pytest.fixture(scope="module")
def ports() -> list[str]:
    """Free ports, of the driver and of two TaskManagers."""
    return [str(port) for port in free_ports(3)]


@pytest.fixture(scope="module")
def cluster(ports: list[str]) -> Iterator[MiniCluster]:
    settings = {
        "metrics.reporters": "prometheus",
        "metrics.reporter.prometheus.port": ",".join(ports),
        # Values of labels as they are, so that names need Grafana's escapes.
        "metrics.reporter.prometheus.filterLabelValueCharacters": "false",
    }
    with MiniCluster(task_manager_count=2, slots_per_task_manager=1, settings=settings) as one:
        yield one


@pytest.fixture
def prometheus(tmp_path: Path, ports: list[str]) -> Iterator[PrometheusServer]:
    """Prometheus with the configuration of the example, but for the ports and a shorter interval."""
    lines = "".join(rf"\g<1>{port}" for port in ports)
    text, count = re.subn(
        r"(\n +- 127\.0\.0\.1:)\d+(?:\n +- .+)*", lines, CONFIGURATION.read_text()
    )
    assert count == 1
    assert text.count("scrape_interval: 10s") == 1
    own = tmp_path / "prometheus.yml"
    own.write_text(text.replace("scrape_interval: 10s", "scrape_interval: 1s"))
    with prometheus_server(tmp_path, own) as server:
        yield server


def test_the_configuration_is_one_that_prometheus_takes() -> None:
    done = subprocess.run(
        [program_path("promtool"), "check", "config", str(CONFIGURATION)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done


def test_each_panel_has_data_of_a_job_that_runs(
    env: StreamExecutionEnvironment, prometheus: PrometheusServer, ports: list[str]
) -> None:
    env.set_parallelism(2).enable_checkpointing(200)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Now())
    numbers = env.from_source(PacedSource(10_000_000, 10), strategy, "numbers", Types.INT())
    counted = numbers.key_by(lambda number: number % 10, key_type=Types.INT()).reduce(max)
    counted.sink_to(DiscardingSink())
    env.execute_async(JOB)

    for title, target in TARGETS:
        prometheus.await_series(interpolated(target["expr"], ALL), title)
    assert prometheus.targets() == [("up", "")] * len(ports)

    # What the variables offer, chosen one by one, is the same as all of it.
    offered = {
        each["name"]: prometheus.label_values(each["query"]["query"])
        for each in DASHBOARD["templating"]["list"]
        if each["type"] == "query"
    }
    assert offered["job"] == [JOB]
    assert len(offered["task"]) == 2
    named = {name: chosen(values) for name, values in offered.items()}
    found: dict[str, list[Series]] = {}
    for title, target in TARGETS:
        series = prometheus.query(interpolated(target["expr"], named))
        assert series, target["expr"]
        shown = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
        assert all(labels.get(label) for labels, _ in series for label in shown), (title, series)
        assert shown or len(series) == 1, f"{title}: several series have one name: {series}"
        found.setdefault(title, []).extend(series)

    values = {title: [value for _, value in series] for title, series in found.items()}
    assert values["Running jobs"] == [1]
    assert values["TaskManagers"] == [2, 0]
    assert values["Slots"] == [0, 2]
    assert values["Restarts"] == [0]
    assert values["Completed checkpoints"][0] >= 1
    assert {labels["task_name"] for labels, _ in found["Rows into each task"]} == set(
        offered["task"]
    )
    assert max(values["Rows into each task"]) > 0
    assert all(1 <= value <= 2 for value in values["Skew: greatest over average subtask"])
    assert all(-1_000 <= value <= 60_000 for value in values["Watermark behind the clock"])
    assert len(values["Memory of its budget"]) == 2

    # Lines that it could not read, or that stand on the page twice, are warnings.
    assert not re.findall("^.*level=(?:warn|error).*$", prometheus.log.read_text(), re.MULTILINE)
