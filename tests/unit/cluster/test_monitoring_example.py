"""The dashboard and the configuration of examples/monitoring name what a job really reports."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.cluster.minicluster import MiniCluster
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.core.types.type_info import Types
from headrace.functions.sink import DiscardingSink
from headrace.functions.watermarks import TimestampAssigner, WatermarkStrategy
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.metrics.cluster_names import CLUSTER_METRIC_NAMES
from headrace.metrics.metric_name import MetricScope
from headrace.metrics.readings import MetricReport
from headrace.metrics.reporters import reporter_setup
from headrace.metrics.reporters.prometheus import MetricFamilies
from headrace.metrics.reporters.reporter import MetricReporter
from testkit.simulation.simulated_job import PacedSource

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "monitoring"
NAME = re.compile(r"flink_\w+")
UNITS = {"none", "short", "percent", "percentunit", "bytes", "Bps", "ops", "ns", "ms"}
"""Grafana's names of units."""
DRAWN = "id type title description datasource gridPos fieldConfig targets options"
FIELDS = {
    "dashboard": "title uid tags schemaVersion version editable timezone refresh time templating annotations panels",
    "variable": "name label type query datasource refresh multi includeAll allValue current",
    "row": "id type title collapsed gridPos panels",
    "stat": DRAWN,
    "timeseries": DRAWN,
    "stat options": "reduceOptions colorMode graphMode",
    "timeseries options": "legend tooltip",
    "fieldConfig": "defaults overrides",
    "defaults": "unit min max thresholds custom",
    "custom": "fillOpacity showPoints",
    "gridPos": "x y w h",
    "target": "refId datasource expr legendFormat",
}  # fmt: skip
"""Fields that Grafana has in each of these: types of @grafana/schema 11.6 and 13.2, and Prometheus' query."""


class NumberAsTime(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


@pytest.fixture(scope="module")
def reported() -> Iterator[dict[str, set[str]]]:
    """The labels of each family that a job with event time, a shuffle and checkpoints reports."""
    found: dict[str, set[str]] = {}

    class NotingReporter(MetricReporter):
        def report(self, report: MetricReport) -> None:
            for family in MetricFamilies(filters_values=True).of((*report.groups, *report.ended)):
                for sample in family.samples:
                    found.setdefault(family.name, set()).update(sample.labels)

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    watermarks = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        NumberAsTime()
    )
    numbers = env.from_source(PacedSource(300, 10), watermarks, "numbers", Types.INT())
    numbers.key_by(lambda number: number % 2, key_type=Types.INT()).reduce(max).sink_to(
        DiscardingSink()
    )
    settings = Settings({"execution.checkpointing.interval": "20 ms"})
    job_id = JobId.generate(SeededRandom("monitoring"))
    graph = generate_job_graph(env.get_stream_graph("monitored"), job_id, settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reporter_setup, "load_entry_point", lambda group, name: NotingReporter)
        with MiniCluster(settings={"metrics.reporter.noting.interval": "100 ms"}) as cluster:
            cluster.submit(graph)
            assert cluster.await_result(job_id).status is JobStatus.FINISHED
    yield found


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    return json.loads((FOLDER / "grafana_dashboard.json").read_text("utf-8"))


def expressions(dashboard: dict[str, Any]) -> list[str]:
    panels = [each for each in dashboard["panels"] if each["type"] != "row"]
    queries = [each["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    return [target["expr"] for each in panels for target in each["targets"]] + [
        query["query"] for query in queries
    ]


def test_each_name_in_the_dashboard_is_reported(
    dashboard: dict[str, Any], reported: dict[str, set[str]]
) -> None:
    named = {name for expression in expressions(dashboard) for name in NAME.findall(expression)}
    assert len(named) > 35
    assert named - reported.keys() == set()


def test_each_label_in_the_dashboard_is_one_of_its_metric(
    dashboard: dict[str, Any], reported: dict[str, set[str]]
) -> None:
    wrong: list[str] = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            (name, *_) = NAME.findall(target["expr"])
            used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            used |= set(re.findall(r"(\w+)=~", target["expr"]))
            used |= set(re.findall(r"by \((\w+)\)", target["expr"]))
            wrong += [f"{name}: {label}" for label in used - reported[name]]
    assert wrong == []


def test_the_dashboard_has_the_fields_that_grafana_reads(dashboard: dict[str, Any]) -> None:
    # Panels and variables of Grafana itself, without plug-ins; version 36 is the first with data sources as objects.
    assert dashboard["schemaVersion"] >= 36
    assert {"title", "uid", "time", "refresh", "timezone"} <= dashboard.keys()
    variables = {each["name"]: each["type"] for each in dashboard["templating"]["list"]}
    source = {"type": "prometheus", "uid": "${datasource}"}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "datasource":
            assert (variable["name"], variable["query"]) == ("datasource", "prometheus")
        else:
            assert (variable["type"], variable["datasource"]) == ("query", source)
            assert variable["query"].keys() == {"query", "refId"}
            # Asked again when the range of time changes: jobs come and go.
            assert (variable["refresh"], variable["multi"], variable["includeAll"]) == (
                2,
                True,
                True,
            )
    used: set[str] = set()
    for panel in dashboard["panels"]:
        assert panel["type"] in ("row", "stat", "timeseries"), panel["title"]
        if panel["type"] == "row":
            assert (panel["collapsed"], panel["panels"]) == (False, []), panel["title"]
            continue
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"] in UNITS and panel["fieldConfig"]["overrides"] == []
        names = [target["refId"] for target in panel["targets"]]
        assert names and len(names) == len(set(names)), panel["title"]
        for target in panel["targets"]:
            assert panel["datasource"] == target["datasource"] == source
            assert target["expr"].count("(") == target["expr"].count(")")
            used |= set(re.findall(r"\$(\w+)", target["expr"]))
    assert used == variables.keys() - {"datasource"}


def test_each_field_of_the_dashboard_is_one_that_grafana_has(dashboard: dict[str, Any]) -> None:
    found = [("dashboard", dashboard)]
    found += [("variable", each) for each in dashboard["templating"]["list"]]
    for panel in dashboard["panels"]:
        kind = panel["type"]
        found += [(kind, panel), ("gridPos", panel["gridPos"])]
        if kind != "row":
            defaults = panel["fieldConfig"]["defaults"]
            found += [
                (f"{kind} options", panel["options"]),
                ("fieldConfig", panel["fieldConfig"]),
                ("defaults", defaults),
                ("custom", defaults.get("custom", {})),
                *(("target", target) for target in panel["targets"]),
            ]
    unknown = {
        (kind, field) for kind, each in found for field in each.keys() - FIELDS[kind].split()
    }
    assert unknown == set()


def test_panels_lie_side_by_side(dashboard: dict[str, Any]) -> None:
    places = [each["gridPos"] for each in dashboard["panels"]]
    cells = [
        (column, line)
        for place in places
        for column in range(place["x"], place["x"] + place["w"])
        for line in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)) and max(column for column, _ in cells) < 24
    assert len({each["id"] for each in dashboard["panels"]}) == len(places)


def test_every_metric_of_jobs_and_of_the_cluster_is_reported(
    reported: dict[str, set[str]],
) -> None:
    prefixes = {
        MetricScope.JOB: "flink_jobmanager_job_",
        MetricScope.CLUSTER: "flink_jobmanager_",
        MetricScope.PROCESS: "flink_taskmanager_",
    }
    # What coordinators have depends on the connector.
    wanted = {
        prefixes[row.scope] + row.name.replace(".", "_")
        for row in CLUSTER_METRIC_NAMES
        if row.scope is not MetricScope.COORDINATOR
    }
    assert wanted - reported.keys() == set()


def test_the_ports_that_prometheus_fetches_are_those_of_the_command_that_it_names() -> None:
    text = (FOLDER / "prometheus.yml").read_text("utf-8")
    found = re.search(r"metrics\.reporter\.prometheus\.port=(\d+)-(\d+)", text)
    assert found is not None
    ports = [int(port) for port in re.findall(r"- 127\.0\.0\.1:(\d+)", text)]
    assert ports == list(range(int(found[1]), int(found[2]) + 1))
