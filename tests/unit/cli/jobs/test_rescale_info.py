"""`headrace rescale-info`: parallelism, bounds, slots and history, with the adaptive scheduler and without."""

import json
from typing import Any

from tests.unit.cli.jobs.answers import JOB_PAGE, ONE_RUNNING, SINK, STARTED
from tests.unit.cli.shell import Shell
from tests.unit.rest.fake_cluster import JOB, VERTEX, Answer, fake_cluster

BASE: dict[str, Any] = {
    **ONE_RUNNING,
    f"GET /jobs/{JOB}": JOB_PAGE,
    "GET /overview": {"slots-total": 4, "slots-available": 2},
}
ADAPTIVE = {
    **BASE,
    f"GET /jobs/{JOB}/resource-requirements": {
        VERTEX: {"parallelism": {"lowerBound": 1, "upperBound": 8}},
        SINK: {"parallelism": {"lowerBound": 1, "upperBound": 1}},
    },
    f"GET /jobs/{JOB}/rescales/overview": {
        "rescalesCounts": {"ignored": 0, "inProgress": 1, "completed": 3, "failed": 0},
        "latest": {
            "completed": {
                "startTimestampInMillis": STARTED,
                "triggerCause": "UPDATE_REQUIREMENT",
                "terminatedReason": "SUCCEEDED",
            },
            "failed": None,
        },
    },
}


def test_bounds_and_history_of_a_job_that_can_be_rescaled(shell: Shell) -> None:
    with fake_cluster(ADAPTIVE, token="") as cluster:
        outcome = shell("rescale-info", "-m", cluster.authority)
    assert outcome.lines[0] == "departures (RUNNING), scheduler Default"
    assert outcome.lines[1] == "slots: 2 free of 4"
    assert outcome.lines[2].split() == ["vertex", "now", "lower", "upper", "most"]
    assert outcome.lines[3].split()[-4:] == ["2", "1", "8", "128"]
    assert outcome.lines[5:] == [
        "rescales: 0 ignored, 1 in progress, 3 completed, 0 failed",
        "last completed: 18.11.2026 11:06:40, UPDATE_REQUIREMENT, SUCCEEDED",
    ]


def test_without_the_adaptive_scheduler_it_says_how_to_change_the_parallelism(shell: Shell) -> None:
    unsupported = Answer(500, {"errors": ["Internal server error.", "unsupported"]})
    answers = {**BASE, f"GET /jobs/{JOB}/resource-requirements": unsupported}
    with fake_cluster(answers, token="") as cluster:
        outcome = shell("rescale-info", "-m", cluster.authority, JOB)
        as_json = json.loads(shell("rescale-info", "--json", "-m", cluster.authority, JOB).out)
    assert outcome.lines[3].split()[-4:] == ["2", "-", "-", "128"]
    assert "headrace run -s PATH -p N" in outcome.lines[-1]
    assert (as_json["is-rescalable"], as_json["rescales"]) == (False, None)
    assert as_json["vertices"][0]["max-parallelism"] == 128
