"""Answers of a REST endpoint, as its contract has them, that several tests of commands give."""

from typing import Any

from tests.unit.rest.fake_cluster import JOB, VERTEX, completed

OTHER_JOB = "0c" * 16
SINK = "0d" * 16
STARTED = 1_795_000_000_000
"""2026-11-18 11:06:40 UTC."""


def job_details(
    jid: str, state: str, start: int = STARTED, name: str = "departures"
) -> dict[str, Any]:
    return {"jid": jid, "name": name, "state": state, "start-time": start, "end-time": -1}


def jobs(*found: dict[str, Any]) -> dict[str, Any]:
    return {"GET /jobs/overview": {"jobs": list(found)}}


ONE_RUNNING = jobs(job_details(JOB, "RUNNING"))


def vertex(vertex_id: str, name: str, parallelism: int = 2) -> dict[str, Any]:
    return {
        "id": vertex_id,
        "name": name,
        "parallelism": parallelism,
        "maxParallelism": 128,
        "status": "RUNNING",
    }


JOB_PAGE = {
    "jid": JOB,
    "name": "departures",
    "state": "RUNNING",
    "schedulerType": "Default",
    "now": STARTED + 90_000,
    "duration": 90_000,
    "vertices": [vertex(VERTEX, "Source: flights -> Map"), vertex(SINK, "Sink: Print", 1)],
}


def operation(path: str, results: str = "", **answer: Any) -> dict[str, Any]:
    """An asynchronous operation that is completed at once."""
    return {
        f"POST {path}": lambda request: {"request-id": request.body["triggerId"]},
        f"GET {results or path}/*": completed(**answer),
    }
