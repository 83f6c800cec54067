"""Metrics over REST: names first, values for those asked for, under Flink's ids."""

import math
import re

import pytest

from headrace.rest.handlers.metrics import metric_id
from tests.unit.rest.sample_cluster import COUNTER, RUNNING_JOB, SOURCE, TASK_MANAGER
from tests.unit.rest.served_cluster import ServedCluster

JOB = f"/jobs/{RUNNING_JOB.hex()}"
VERTEX = f"{JOB}/vertices/{COUNTER.hex()}"
TM = f"/taskmanagers/{TASK_MANAGER}"


def test_metrics_are_names_first_and_values_for_those_asked_for(cluster: ServedCluster) -> None:
    names = [each["id"] for each in cluster.get(f"{VERTEX}/metrics").json]
    assert {"0.numRecordsIn", "1.numRecordsIn"} <= set(names)
    found = cluster.get(f"{VERTEX}/metrics?get=1.numRecordsIn,none").json
    assert found == [{"id": "1.numRecordsIn", "value": "200"}]
    assert cluster.get(f"{VERTEX}/subtasks/1/metrics?get=numRecordsIn").json == [
        {"id": "numRecordsIn", "value": "200"}
    ]


def test_metrics_of_the_network_have_flinks_names_too(cluster: ServedCluster) -> None:
    name = "Shuffle.Netty.Input.Buffers.inPoolUsage"
    assert f"1.{name}" in {each["id"] for each in cluster.get(f"{VERTEX}/metrics").json}
    plain = cluster.get(f"{VERTEX}/metrics?get=1.inPoolUsage").json[0]["value"]
    assert cluster.get(f"{VERTEX}/metrics?get=1.{name}").json == [
        {"id": f"1.{name}", "value": plain}
    ]
    assert cluster.get(f"{VERTEX}/subtasks/1/metrics?get={name}").json == [
        {"id": name, "value": plain}
    ]
    (found,) = cluster.get(f"{VERTEX}/subtasks/metrics?get={name}&agg=max").json
    assert (found["id"], found["max"]) == (name, float(plain))


def test_metrics_of_coordinators_stand_below_their_operators(cluster: ServedCluster) -> None:
    path = f"{JOB}/vertices/{SOURCE.hex()}/jm-operator-metrics"
    name = "Source__cities.coordinator.enumerator.unassignedSplits"
    assert cluster.get(path).json == [{"id": name}]
    assert cluster.get(f"{path}?get={name},none").json == [{"id": name, "value": "7"}]
    assert cluster.get(f"{VERTEX}/jm-operator-metrics").json == []


def test_ids_of_metrics_have_no_other_characters_than_flinks(cluster: ServedCluster) -> None:
    for path in (
        f"{VERTEX}/metrics",
        f"{JOB}/metrics",
        f"{TM}/metrics",
        f"{VERTEX}/subtasks/metrics",
    ):
        for each in cluster.get(path).json:
            assert re.fullmatch(r"[A-Za-z0-9_.]+|.+\.split\..+", each["id"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ('0.count & "quote".numRecordsIn', "0.count____quote_.numRecordsIn"),
        ("0.m,x.numRecordsIn", "0.m_x.numRecordsIn"),
        ("0.Sink: Print to Std. Out.numRecordsIn", "0.Sink__Print_to_Std__Out.numRecordsIn"),
        ("0.my-source.split.file-0.watermark", "0.my_source.split.file-0.watermark"),
    ],
)
def test_an_operator_stands_in_an_id_with_underscores(name: str, expected: str) -> None:
    assert metric_id(name) == expected


def test_metrics_of_subtasks_are_combined(cluster: ServedCluster) -> None:
    path = f"{VERTEX}/subtasks/metrics?get=numRecordsIn"
    (found,) = cluster.get(path).json
    assert found.pop("skew") == pytest.approx(100 / 3)
    assert found == {"id": "numRecordsIn", "min": 100, "max": 200, "avg": 150, "sum": 300}
    assert cluster.get(f"{path}&agg=max").json == [{"id": "numRecordsIn", "max": 200}]
    assert cluster.get(f"{path}&agg=sum&subtasks=1,5-9").json == [
        {"id": "numRecordsIn", "sum": 200}
    ]
    assert cluster.get(f"{path}&agg=median").status == 400
    assert cluster.get(f"{path}&subtasks=x").status == 400


def test_metrics_of_jobs_and_processes(cluster: ServedCluster) -> None:
    names = {each["id"] for each in cluster.get(f"{JOB}/metrics").json}
    assert {
        "uptime",
        "numRestarts",
        "numRescales",
        "numberOfCompletedCheckpoints",
    } <= names
    (path,) = cluster.get(f"{JOB}/metrics?get=lastCheckpointExternalPath").json
    assert path["value"] == "file:/checkpoints/chk-4"
    (combined,) = cluster.get("/jobs/metrics?get=numberOfCompletedCheckpoints&agg=sum").json
    assert math.isfinite(combined["sum"])
    driver = cluster.get("/jobmanager/metrics?get=taskSlotsTotal,numRegisteredTaskManagers").json
    assert {each["id"]: each["value"] for each in driver} == {
        "taskSlotsTotal": "2",
        "numRegisteredTaskManagers": "1",
    }
    assert cluster.get(f"{TM}/metrics?get=Status.JVM.Memory.Heap.Used").json == [
        {"id": "Status.JVM.Memory.Heap.Used", "value": "123"}
    ]
    assert cluster.get("/taskmanagers/metrics?get=Status.JVM.Memory.Heap.Used&agg=max").json == [
        {"id": "Status.JVM.Memory.Heap.Used", "max": 123}
    ]
