"""`headrace metrics`: names that fit, values in few requests, aggregates of a vertex."""

import json
from typing import Any

import pytest

from headrace.cli.jobs.metrics import fits, read_metrics
from headrace.rest.client import RestClient
from tests.unit.cli.jobs.answers import JOB_PAGE, ONE_RUNNING
from tests.unit.cli.shell import Shell
from tests.unit.rest.fake_cluster import JOB, VERTEX, Request, fake_cluster

MANAGERS = {"GET /taskmanagers": {"taskmanagers": [{"id": "host:1-aa"}, {"id": "host:2-bb"}]}}


def metrics_of(values: dict[str, Any]) -> Any:
    """A metrics route: names without `get`, values with it."""

    def answer(request: Request) -> Any:
        if "get" not in request.query:
            return [{"id": name} for name in values]
        asked = request.query["get"][0].split(",")
        return [
            {"id": name, **value} if isinstance(value, dict) else {"id": name, "value": value}
            for name, value in values.items()
            if name in asked
        ]

    return answer


def test_metrics_of_a_job_are_printed_by_name(shell: Shell) -> None:
    answers = {
        **ONE_RUNNING,
        f"GET /jobs/{JOB}/metrics": metrics_of({"uptime": "12", "numRestarts": "0"}),
    }
    with fake_cluster(answers, token="") as cluster:
        outcome = shell("metrics", "-m", cluster.authority)
        as_json = shell("metrics", "--json", "-g", "up*", "-m", cluster.authority, JOB)
    assert outcome.lines == ["numRestarts  0", "uptime       12"]
    assert json.loads(as_json.out) == {"metrics": [{"id": "uptime", "value": "12"}]}


def test_metrics_of_a_job_that_is_not_there_are_an_error(shell: Shell) -> None:
    answers = {f"GET /jobs/{JOB}/metrics": metrics_of({})}
    with fake_cluster(answers, token="") as cluster:
        outcome = shell("metrics", "-m", cluster.authority, JOB)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("error: ")


@pytest.mark.parametrize("named", [VERTEX, "1", "FLIGHTS"])
def test_a_vertex_is_named_by_id_number_or_part_and_shown_over_its_subtasks(
    shell: Shell, named: str
) -> None:
    busy = {
        "busyTimeMsPerSecond": {
            "min": 1.0,
            "max": 999.5,
            "avg": 500.25,
            "sum": 1000.5,
            "skew": 12.0,
        }
    }
    answers = {
        f"GET /jobs/{JOB}": JOB_PAGE,
        f"GET /jobs/{JOB}/vertices/{VERTEX}/subtasks/metrics": metrics_of(busy),
    }
    with fake_cluster(answers, token="") as cluster:
        outcome = shell("metrics", "--vertex", named, "-m", cluster.authority, JOB)
    assert outcome.lines[0].split() == ["min", "max", "avg", "sum", "skew"]
    assert outcome.lines[1].split() == [
        "busyTimeMsPerSecond", "1", "999.50", "500.25", "1,000.50", "12",
    ]  # fmt: skip


def test_a_vertex_that_is_not_there_is_an_error_that_lists_all(shell: Shell) -> None:
    with fake_cluster({f"GET /jobs/{JOB}": JOB_PAGE}, token="") as cluster:
        outcome = shell("metrics", "--vertex", "window", "-m", cluster.authority, JOB)
        unclear = shell("metrics", "--vertex", "s", "-m", cluster.authority, JOB)
    assert outcome.code == 1
    assert outcome.err.startswith("error: no vertex has 'window' in the name; there are\n")
    assert f"  1  {VERTEX}  Source: flights -> Map" in outcome.err
    assert unclear.err.startswith("error: several vertices have 's' in the name")


@pytest.mark.parametrize("named", ["2", "bb", "host:2-bb"])
def test_a_task_manager_is_named_by_number_or_part_of_its_id(shell: Shell, named: str) -> None:
    answers = {**MANAGERS, "GET /taskmanagers/host%3A2-bb/metrics": metrics_of({"a": "1"})}
    with fake_cluster(answers, token="") as cluster:
        assert shell("metrics", "--taskmanager", named, "-m", cluster.authority).out == "a  1\n"


def test_a_task_manager_that_is_not_there_is_an_error_that_lists_all(shell: Shell) -> None:
    with fake_cluster(MANAGERS, token="") as cluster:
        outcome = shell("metrics", "--taskmanager", "7", "-m", cluster.authority)
    assert outcome.err.splitlines()[:3] == [
        "error: no TaskManager has '7' in the id; there are",
        "  1  host:1-aa",
        "  2  host:2-bb",
    ]


def test_metrics_of_the_job_manager_and_of_a_subtask_have_routes_of_their_own(shell: Shell) -> None:
    answers = {
        f"GET /jobs/{JOB}": JOB_PAGE,
        "GET /jobmanager/metrics": metrics_of({}),
        f"GET /jobs/{JOB}/vertices/{VERTEX}/subtasks/1/metrics": metrics_of({"b": "2"}),
    }
    with fake_cluster(answers, token="") as cluster:
        assert shell("metrics", "--of-jobmanager", "-m", cluster.authority).out == "No metrics.\n"
        done = shell("metrics", "--vertex", "1", "--subtask", "1", "-m", cluster.authority, JOB)
    assert done.out == "b  2\n"


@pytest.mark.parametrize("options", [["--subtask", "1"], ["--of-jobmanager", "--taskmanager", "1"]])
def test_options_that_do_not_fit_are_refused(shell: Shell, options: list[str]) -> None:
    assert shell("metrics", *options, JOB).code == 1


def test_many_names_are_asked_for_in_several_requests_of_bounded_length() -> None:
    values = {f"operator_{number:04}.{'x' * 80}": str(number) for number in range(200)}
    with fake_cluster({"GET /jobmanager/metrics": metrics_of(values)}, token="") as cluster:
        found = read_metrics(RestClient(cluster.address), "/jobmanager/metrics", ())
    assert [one["value"] for one in found] == list(values.values())
    lengths = [len(one.query["get"][0]) for one in cluster.requests[1:]]
    assert len(lengths) > 1
    assert max(lengths) < 4000


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("numRecordsIn", "records", True),
        ("numRecordsIn", "numRecords*", True),
        ("numRecordsIn", "Records*", False),
        ("numRecordsIn", "*IN", True),
        ("numRecordsIn", "bytes", False),
    ],
)
def test_patterns_are_parts_or_have_wildcards(name: str, pattern: str, expected: bool) -> None:
    assert fits(name, pattern) is expected
