"""`headrace rescale-info`: parallelism, slots, and the way to change the parallelism."""

import json
from typing import Any, Final

from tests.unit.cli.jobs.answers import JOB_PAGE, ONE_RUNNING
from tests.unit.cli.shell import Shell
from tests.unit.rest.fake_cluster import JOB, VERTEX, fake_cluster

ANSWERS: Final[dict[str, Any]] = {
    **ONE_RUNNING,
    f"GET /jobs/{JOB}": JOB_PAGE,
    "GET /overview": {"slots-total": 4, "slots-available": 2},
}


def test_the_parallelism_of_each_vertex_is_shown_with_the_way_to_change_it(shell: Shell) -> None:
    with fake_cluster(ANSWERS, token="") as cluster:
        outcome = shell("rescale-info", "-m", cluster.authority)
    assert outcome.lines[:2] == ["departures (RUNNING)", "slots: 2 free of 4"]
    assert outcome.lines[2].split() == ["vertex", "now", "most"]
    assert outcome.lines[3].split()[-2:] == ["2", "128"]
    assert outcome.lines[4].split()[-2:] == ["1", "128"]
    assert "headrace run -s PATH -p N" in outcome.lines[-1]


def test_of_a_job_that_has_ended_no_savepoint_is_advised(shell: Shell) -> None:
    answers = {**ANSWERS, f"GET /jobs/{JOB}": {**JOB_PAGE, "state": "FAILED"}}
    with fake_cluster(answers, token="") as cluster:
        outcome = shell("rescale-info", "-m", cluster.authority, JOB)
    assert outcome.lines[-1].startswith("The job has ended")


def test_nothing_is_asked_but_the_job_and_the_slots(shell: Shell) -> None:
    with fake_cluster(ANSWERS, token="") as cluster:
        outcome = shell("rescale-info", "--json", "-m", cluster.authority, JOB)
    assert cluster.lines == [f"GET /jobs/{JOB}", "GET /overview"]
    found = json.loads(outcome.out)
    assert (found["slots-total"], found["slots-available"]) == (4, 2)
    assert found["vertices"][0] == {
        "vertex-id": VERTEX,
        "name": "Source: flights -> Map",
        "parallelism": 2,
        "max-parallelism": 128,
    }
