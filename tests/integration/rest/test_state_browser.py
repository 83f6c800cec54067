"""State of a running job, looked at and edited over REST, and a job that goes on from the edited savepoint."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.rest.client import RestClient
from headrace.rest.client_errors import RestRefusedError
from headrace.rest.home.connections import find_connection
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until
from tests.integration.rest.counting_program import (
    SETTINGS,
    Program,
    await_running,
    completed,
    vertices,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestClient]:
    """A client of a cluster in this process, found by its connection file."""
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    with MiniClusterExecutor(slot_count=2, settings=SETTINGS):
        found = find_connection(None, print).connection
        yield RestClient(found.address, found.token)


def rows_of(rest: RestClient, program: Program, **query: Any) -> dict[int, int]:
    """Return the counts of all keys, as the page of state shows them."""
    found = rest.get(f"{program.job}/state/operators/count/rows", state="count", **query)
    names = [one["name"] for one in found["columns"]]
    rows = [dict(zip(names, one["values"], strict=True)) for one in found["rows"]]
    return {row["key"]: row["value"] for row in rows}


def cancel(rest: RestClient, program: Program) -> None:
    rest.patch(program.job, mode="cancel")
    wait_until(lambda: rest.get(f"{program.job}/status")["status"] == "CANCELED")


def savepoint_of(rest: RestClient, program: Program, folder: Path) -> int:
    """Take a savepoint and return its id, once the job's statistics have it."""
    trigger = rest.post(f"{program.job}/savepoints", {"target-directory": str(folder)})
    completed(rest, f"{program.job}/savepoints/{trigger['request-id']}")

    def readable() -> list[int]:
        snapshots = rest.get(f"{program.job}/state")["snapshots"]
        return [
            one["id"] for one in snapshots if one["kind"] == "savepoint" and one["problem"] is None
        ]

    wait_until(lambda: bool(readable()))
    return readable()[0]


def test_state_is_looked_at_edited_into_a_new_savepoint_and_a_job_goes_on_from_it(
    rest: RestClient, tmp_path: Path
) -> None:
    program = Program("state to edit", tmp_path)
    await_running(rest, program.job)
    program.gate.open_to(100)
    wait_until(lambda: vertices(rest, program.job)[-1]["metrics"]["read-records"] == 100)
    wait_until(lambda: rows_of(rest, program) == {0: 25, 1: 25, 2: 25, 3: 25})
    assert rows_of(rest, program, keys="[1,99]") == {1: 25}

    states = rest.get(f"{program.job}/state/operators/count")["states"]
    (count,) = [one for one in states if one["name"] == "count"]
    assert (count["table"], count["kind"], count["rows"]) == ("keyed", "value", 4)
    assert sum(one["rows"] for one in count["subtasks"]) == 4
    assert count["subtask-skew"] >= 1
    operators = rest.get(f"{program.job}/state")["operators"]
    assert {"numbers", "count", "print"} <= {one["uid"] for one in operators}
    with pytest.raises(RestRefusedError, match="no state 'nothing'"):
        rest.get(f"{program.job}/state/operators/count/rows", state="nothing")

    snapshot = savepoint_of(rest, program, tmp_path / "savepoints")
    assert rows_of(rest, program, snapshot=str(snapshot)) == {0: 25, 1: 25, 2: 25, 3: 25}
    edits = [
        {"action": "set", "operator": "count", "state": "count", "key": 1, "value": 1_000},
        {"action": "delete-key", "operator": "count", "key": 2},
    ]
    body = {"snapshot": snapshot, "reason": "counted twice", "edits": edits}
    trigger = rest.post(f"{program.job}/state/edits", body)["request-id"]
    outcome = completed(rest, f"{program.job}/state/edits/{trigger}")
    assert "failure-cause" not in outcome, outcome
    assert outcome["location"].startswith(f"file:{tmp_path}/savepoints/savepoint-")
    assert rows_of(rest, program) == {0: 25, 1: 25, 2: 25, 3: 25}, "the job goes on as it was"
    cancel(rest, program)

    path = outcome["location"].removeprefix("file:")
    again = Program("the edited state", tmp_path, settings={"execution.state-recovery.path": path})
    await_running(rest, again.job)
    wait_until(lambda: rows_of(rest, again) == {0: 25, 1: 1_000, 3: 25})
    (restored,) = [
        one for one in rest.get(f"{again.job}/state")["snapshots"] if one["kind"] == "restored"
    ]
    assert restored["path"].endswith(path)
    assert rows_of(rest, again, snapshot=str(restored["id"])) == {0: 25, 1: 1_000, 3: 25}
    cancel(rest, again)
