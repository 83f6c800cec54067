"""Routes of the profiler: off by default; begin, list and show profiles of the driver and of a TaskManager."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from headrace.core.process.process_profiler import ProfilingStatus
from tests.unit.rest.sample_cluster import START_MS, TASK_MANAGER
from tests.unit.rest.served_cluster import ServedCluster, served_cluster

DRIVER = "/jobmanager/profiler"
WORKER = f"/taskmanagers/{TASK_MANAGER}/profiler"
SETTINGS = {"rest.profiling.enabled": "true", "rest.profiling.duration-max": "1 min"}


@pytest.fixture
def profiled(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ServedCluster]:
    with served_cluster(tmp_path_factory.mktemp("home"), monkeypatch, SETTINGS) as served:
        yield served


@pytest.mark.parametrize("place", [DRIVER, WORKER])
def test_the_profiler_is_off_until_it_is_asked_for(cluster: ServedCluster, place: str) -> None:
    answers = [
        cluster.ask("POST", place, {"mode": "CPU", "duration": 5}),
        cluster.get(place),
        cluster.get(f"{place}/cpu.html"),
    ]
    assert [(each.status, "rest.profiling.enabled=true" in each.errors) for each in answers] == [
        (404, True)
    ] * 3


def test_a_profile_of_the_driver_is_a_page_with_a_flame_graph(profiled: ServedCluster) -> None:
    begun = profiled.ask("POST", DRIVER, {"mode": "WALL", "duration": 1})
    assert begun.status == 200
    assert (begun.json["status"], begun.json["mode"], begun.json["duration"]) == (
        "RUNNING",
        "WALL",
        1,
    )
    again = profiled.ask("POST", DRIVER, {"mode": "CPU", "duration": 1})
    assert (again.status, "jobmanager is still under profiling" in again.errors) == (409, True)
    listed = profiled.get_until(
        DRIVER, lambda found: found["profilingList"][0]["status"] != "RUNNING"
    ).json["profilingList"]
    assert [(each["status"], each["message"]) for each in listed] == [
        ("FINISHED", "Profiling Successful")
    ]
    page = profiled.get(f"{DRIVER}/{listed[0]['outputFile']}")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"<svg" in page.body
    assert b"threading" in page.body


def test_a_profile_of_a_task_manager_is_asked_for_there(profiled: ServedCluster) -> None:
    manager = profiled.resource_manager
    begun = profiled.ask("POST", WORKER, {"mode": "ALLOC", "duration": 60})
    shape: dict[str, Any] = {
        "status": "RUNNING",
        "mode": "ALLOC",
        "triggerTime": START_MS,
        "finishedTime": None,
        "duration": 60,
        "message": None,
        "outputFile": None,
    }
    assert (begun.status, begun.json) == (200, shape)
    assert profiled.ask("POST", WORKER, {"mode": "CPU", "duration": 1}).status == 409
    manager.profiles = (
        msgspec.structs.replace(
            manager.profiles[0], status=ProfilingStatus.FINISHED, file_name="tm_ALLOC_1.html"
        ),
    )
    (listed,) = profiled.get(WORKER).json["profilingList"]
    assert listed["outputFile"] == "tm_ALLOC_1.html"
    page = profiled.get(f"{WORKER}/tm_ALLOC_1.html").body
    assert b"&lt;map&gt;: 3 bytes" in page
    assert b"<map>" not in page


@pytest.mark.parametrize("place", [DRIVER, WORKER])
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"mode": "CPU", "duration": 61}, "1 min at most (rest.profiling.duration-max)"),
        ({"mode": "CPU", "duration": 0}, "greater than or equal to 1"),
        ({"mode": "HEAP", "duration": 1}, "'CPU', 'ALLOC', 'LOCK', 'WALL' or 'ITIMER'"),
        ({"duration": 1}, "mode"),
    ],
)
def test_an_impossible_profile_is_refused(
    profiled: ServedCluster, place: str, body: dict[str, Any], says: str
) -> None:
    answer = profiled.ask("POST", place, body)
    assert (answer.status, says in answer.errors) == (400, True), answer.errors


@pytest.mark.parametrize("name", ["nothing.html", "..%2F..%2Fetc%2Fpasswd"])
def test_a_profile_that_is_not_there_is_not_found(profiled: ServedCluster, name: str) -> None:
    assert profiled.get(f"{DRIVER}/{name}").status == 404
    assert profiled.get(f"{WORKER}/{name}").status == 404
