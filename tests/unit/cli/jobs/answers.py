"""Answers of a REST endpoint, as its contract has them, that several tests of commands give."""

from typing import Any, Final

from tests.unit.rest.fake_cluster import JOB, VERTEX, Answer, completed

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


JOB_PAGE: Final[dict[str, Any]] = {
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


SAVEPOINT: Final = {"location": "file:/data/savepoint-1"}
_JOB: Final = f"/jobs/{JOB}"
OF_EVERY_COMMAND: Final[dict[str, Any]] = {
    **ONE_RUNNING,
    **operation(f"{_JOB}/savepoints", **SAVEPOINT),
    **operation(f"{_JOB}/stop", f"{_JOB}/savepoints", **SAVEPOINT),
    **operation(f"{_JOB}/checkpoints", checkpointId=7),
    f"PATCH {_JOB}": {},
    f"GET {_JOB}": JOB_PAGE,
    f"GET {_JOB}/metrics": [{"id": "numRestarts", "value": "2"}],
    f"GET {_JOB}/vertices/{VERTEX}/subtasks/metrics": [],
    f"GET {_JOB}/vertices/{SINK}/subtasks/metrics": [],
    f"GET {_JOB}/exceptions": {"exceptionHistory": {"entries": [], "truncated": False}},
    f"GET {_JOB}/vertices/{VERTEX}/flamegraph": {
        "endTimestamp": 5,
        "data": {"name": "root", "value": 1, "children": []},
    },
    f"GET {_JOB}/state": {
        "jid": JOB, "snapshot": None, "backend": "", "savepoint-directory": None, "operators": [], "problem": None,
        "snapshots": [],
    },
    "GET /overview": {
        "taskmanagers": 1, "slots-total": 4, "slots-available": 2, "jobs-running": 1, "jobs-finished": 0,
        "jobs-cancelled": 0, "jobs-failed": 0, "flink-version": "2.3.0",
    },
    "GET /jobmanager/config": [],
    "GET /jobmanager/log": Answer(200, b"a line\n"),
    "GET /config": {"refresh-interval": 3000},
}  # fmt: skip
"""What every line of `COMMAND_LINES` asks for."""

COMMAND_LINES: Final[dict[str, tuple[str, ...]]] = {
    "list": (),
    "cancel": (JOB,),
    "stop": (JOB,),
    "savepoint": (JOB,),
    "checkpoint": (JOB,),
    "rescale-info": (JOB,),
    "logs": (),
    "metrics": (JOB,),
    "exceptions": (JOB,),
    "top": ("--once", JOB),
    "flamegraph": ("-o", "-", "--folded", JOB, "1"),
    "state": (JOB,),
    "open": ("--print",),
}
"""An ordinary use of each command that asks a cluster about jobs."""
