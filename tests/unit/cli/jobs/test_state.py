"""`headrace state`: operators, sizes and rows of state, live and of snapshots, over REST alone."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from click.shell_completion import ShellComplete

from headrace.cli.completion import PROGRAM, VARIABLE
from headrace.cli.main import cli
from tests.unit.cli.jobs.answers import ONE_RUNNING, STARTED
from tests.unit.cli.shell import Shell
from tests.unit.rest.fake_cluster import JOB, FakeCluster, Request, fake_cluster, home_of

OPERATOR: Final = "0e" * 16
SOURCE: Final = "0f" * 16
STATE: Final = f"/jobs/{JOB}/state"
OF_OPERATOR: Final = f"{STATE}/operators/{OPERATOR}"


def operator(operator_id: str, uid: str, name: str) -> dict[str, Any]:
    return {
        "id": operator_id, "uid": uid, "name": name, "vertex": name, "parallelism": 2, "max-parallelism": 128,
        "size": None, "rows": None,
    }  # fmt: skip


def snapshot(number: int, problem: str | None = None) -> dict[str, Any]:
    return {
        "id": number, "kind": "checkpoint", "savepoint-format": None, "timestamp": STARTED, "size": 2_097_152,
        "path": f"file:/data/chk-{number}", "problem": problem,
    }  # fmt: skip


def info(request: Request) -> dict[str, Any]:
    number = int(request.query["snapshot"][0]) if "snapshot" in request.query else None
    found = [
        operator(OPERATOR, "enrich", "KeyedProcess: enrich"),
        operator(SOURCE, "", "Source: orders"),
    ]
    if number is not None:
        found = [{**one, "vertex": None, "rows": 12_000, "size": 5_242_880} for one in found]
    return {
        "jid": JOB, "snapshot": number, "backend": "HashMapStateBackend", "savepoint-directory": None,
        "operators": found, "problem": None,
        "snapshots": [
            snapshot(9, "Newer checkpoints have replaced it."),
            snapshot(7),
            snapshot(6) | {"kind": "savepoint", "savepoint-format": "NATIVE"},
        ],
    }  # fmt: skip


def figures(table: str, name: str, **others: Any) -> dict[str, Any]:
    return {
        "table": table, "name": name, "kind": "value" if table == "keyed" else "", "unreadable": [],
        "is-waiting": False,
        "rows": 12_000, "size": 3_145_728, "expired-rows": None, "oldest-window": None,
        "subtasks": [{"subtask": 0, "rows": 2_000, "size": 524_288}, {"subtask": 1, "rows": 10_000, "size": 2_621_440}],
        "subtask-skew": 1.67, "key-group-count": 1, "key-group-skew": 1.0,
        "key-groups": [{"key-group": 71, "subtask": 1, "rows": 9_000, "size": 2_000_000}],
        "keys": [{"key": "'anna'", "rows": 9, "size": 1_048_576}], "are-keys-exact": False, "timers": [],
        "is-partial": False, **others,
    }  # fmt: skip


STATES: Final[dict[str, Any]] = {
    "id": OPERATOR, "title": "enrich", "snapshot": None, "taken-at": STARTED, "watermark": STARTED - 60_000,
    "states": [
        figures("keyed", "customer"),
        figures("keyed", "seen", unreadable=["map_key"]),
        figures(
            "timers", "user-timers",
            timers=[{"domain": "event", "next": STARTED + 400, "due": {"due": 0, "1 s": 3, "later": 40}}],
        ),
    ],
}  # fmt: skip
ROWS: Final[dict[str, Any]] = {
    "table": "keyed", "state": "customer", "snapshot": None,
    "columns": [{"name": "key", "type": "string", "is-readable": True},
                {"name": "value", "type": "struct<orders: int64>", "is-readable": True}],
    "rows": [{"subtask": 1, "values": ["anna\x1b[2J", {"orders": 12}], "cut": []}],
    "notes": ["There are more than 1 rows: select keys, or one subtask."],
}  # fmt: skip
ANSWERS: Final[dict[str, Any]] = {
    **ONE_RUNNING,
    f"GET {STATE}": info,
    f"GET {OF_OPERATOR}": STATES,
    f"GET {OF_OPERATOR}/rows": ROWS,
}


def last_query(cluster: FakeCluster) -> dict[str, list[str]]:
    return cluster.requests[-1].query


def test_operators_and_snapshots_of_the_only_running_job_are_listed(shell: Shell) -> None:
    with fake_cluster(ANSWERS, token="") as cluster:
        outcome = shell("state", "-m", cluster.authority)
    assert outcome.code == 0
    assert outcome.lines[1].split() == ["1", "enrich", "KeyedProcess:", "enrich", "2", "128"]
    assert any(line.split()[:2] == ["7", "checkpoint"] for line in outcome.lines)
    assert any(line.split()[:3] == ["6", "savepoint,", "native"] for line in outcome.lines)
    assert "Newer checkpoints have replaced it." in outcome.out


def test_the_newest_snapshot_that_can_be_read_is_looked_into(shell: Shell) -> None:
    with fake_cluster(ANSWERS, token="") as cluster:
        outcome = shell("state", "-m", cluster.authority, "--snapshot", "latest", JOB)
        assert last_query(cluster) == {"snapshot": ["7"]}
    assert outcome.lines[1].split()[-3:] == ["12,000", "5.0", "MB"]


def test_states_of_an_operator_have_sizes_skew_and_notes(shell: Shell) -> None:
    with fake_cluster(ANSWERS, token="") as cluster:
        outcome = shell("state", "-m", cluster.authority, "enrich")
    customer, seen = outcome.lines[2].split(), outcome.lines[3]
    assert customer == ["1", "customer", "keyed", "value", "12,000", "3.0", "MB", "1.7x", "1.0x"]
    assert seen.endswith("map_key: pickles, not loaded")


def test_one_state_has_its_largest_parts_and_its_first_rows(shell: Shell) -> None:
    with fake_cluster(ANSWERS, token="") as cluster:
        outcome = shell("state", "-m", cluster.authority, JOB, "enrich", "customer")
        assert last_query(cluster) == {"table": ["keyed"], "state": ["customer"], "limit": ["20"]}
    cells = [line.split() for line in outcome.lines]
    assert ["1", "10,000", "2.5", "MB"] in cells
    assert ["71", "(subtask", "1)", "9,000", "1.9", "MB"] in cells
    assert ["'anna'", "9", "1.0", "MB"] in cells
    assert ["1", "anna\\x1b[2J", '{"orders":', "12}"] in cells
    assert outcome.lines[-1].startswith("There are more than 1 rows")


def test_timers_say_when_they_are_due(shell: Shell) -> None:
    with fake_cluster(ANSWERS, token="") as cluster:
        outcome = shell("state", "-m", cluster.authority, "1", "3")
        assert last_query(cluster)["table"] == ["timers"]
    assert "event timers: next 2026-11-18 11:06:40; 3 within 1 s, 40 later" in outcome.lines


def test_rows_are_asked_for_by_key_subtask_and_number(shell: Shell) -> None:
    with fake_cluster(ANSWERS, token="") as cluster:
        shell("state", "-m", cluster.authority, "--key", "7", "--key", "anna", "--key", '"8"', "--subtask", "1",
              "--limit", "5", "--expired", "--snapshot", "6", JOB, "enrich", "customer")  # fmt: skip
        assert last_query(cluster) == {
            "table": ["keyed"], "state": ["customer"], "keys": ['[7, "anna", "8"]'], "subtask": ["1"],
            "limit": ["5"], "expired": ["true"], "snapshot": ["6"],
        }  # fmt: skip


def test_json_has_the_answers_of_the_routes(shell: Shell) -> None:
    with fake_cluster(ANSWERS, token="") as cluster:
        states = shell("state", "--json", "-m", cluster.authority, "enrich")
        rows = shell("state", "--json", "-m", cluster.authority, "enrich", "customer")
    assert json.loads(states.out) == STATES
    assert json.loads(rows.out) == {"figures": STATES["states"][0], "rows": ROWS}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nothing",), "no operator has 'nothing' in the name; there are"),
        (("enrich", "other"), "no state has 'other' in the name; there are"),
        (("enrich", "--key", "7"), "need the name of a state"),
        (("enrich", "customer", "more"), "'more' is one word too many"),
        (("--snapshot", "newest"), "'newest' is neither"),
    ],
)
def test_wrong_usage_ends_with_1_and_says_what_there_is(
    shell: Shell, arguments: tuple[str, ...], told: str
) -> None:
    with fake_cluster(ANSWERS, token="") as cluster:
        outcome = shell("state", "-m", cluster.authority, *arguments)
    assert outcome.code == 1
    assert told in outcome.err


def test_an_ended_job_sends_to_its_snapshots(shell: Shell) -> None:
    ended = {
        **info(Request("GET", STATE, {}, None, {})),
        "operators": [],
        "problem": "job x has ended",
    }
    with fake_cluster({**ANSWERS, f"GET {STATE}": ended}, token="") as cluster:
        listed = shell("state", "-m", cluster.authority, JOB)
        named = shell("state", "-m", cluster.authority, JOB, "enrich")
    assert (listed.code, listed.lines[0]) == (0, "job x has ended")
    assert (named.code, "--snapshot latest" in named.err) == (1, True)


def test_the_shell_completes_jobs_operators_and_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    completion = ShellComplete(cli, {}, PROGRAM, VARIABLE)

    def words(*before: str, incomplete: str = "") -> list[str]:
        return [one.value for one in completion.get_completions(["state", *before], incomplete)]

    with fake_cluster(ANSWERS) as cluster:
        home_of(monkeypatch, tmp_path, cluster)
        assert words(incomplete="0a") == [JOB]
        assert words(JOB) == ["enrich", "Source: orders"]
        assert words(JOB, "enrich", incomplete="c") == ["customer"]
        assert words(JOB, "nothing") == []
