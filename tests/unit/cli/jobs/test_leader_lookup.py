"""Commands find the leader of a cluster by its election, where no address is named."""

import random
from pathlib import Path

import pytest

from headrace.cluster.high_availability.coordination import open_coordination
from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.core.config import Settings
from tests.unit.cli.shell import Shell
from tests.unit.rest.fake_cluster import fake_cluster


def definitions(folder: Path) -> dict[str, str]:
    return {
        "high-availability.type": "file",
        "high-availability.storageDir": str(folder / "ha"),
        "headrace.checkpoint.key-file": str(folder / "key"),
    }


def arguments(settings: dict[str, str]) -> list[str]:
    return [part for key, value in settings.items() for part in ("-D", f"{key}={value}")]


def test_a_command_asks_the_driver_that_leads(shell: Shell, tmp_path: Path) -> None:
    settings = definitions(tmp_path)
    records = open_coordination(Settings(settings), random.Random(1)).records
    with fake_cluster({"GET /jobs/overview": {"jobs": []}}, token="") as leader:
        records.take(LeaderRecord(1, "a driver", 0, "http://127.0.0.1:1"))
        records.take(LeaderRecord(2, "the next one", 0, leader.address))
        outcome = shell("list", *arguments(settings))
    assert outcome.code == 0, outcome.lines
    assert "GET /jobs/overview" in leader.lines


def test_the_cluster_is_named_by_flink_s_namespace(shell: Shell, tmp_path: Path) -> None:
    settings = definitions(tmp_path)
    named = Settings({**settings, "high-availability.cluster-id": "nightly"})
    with fake_cluster({"GET /jobs/overview": {"jobs": []}}, token="") as leader:
        records = open_coordination(named, random.Random(1)).records
        records.take(LeaderRecord(1, "a driver", 0, leader.address))
        for words in (("-z", "nightly"), ("--zookeeperNamespace", "nightly")):
            assert shell("list", *words, *arguments(settings)).code == 0
    assert leader.lines.count("GET /jobs/overview") == 2
    assert (
        "no driver of the cluster leads" in shell("list", "-z", "daily", *arguments(settings)).err
    )


@pytest.mark.parametrize(
    "command", ["list", "cancel", "stop", "savepoint", "checkpoint", "info", "run"]
)
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-z", "nightly"), "-z needs high availability"),
        (("-z", "..", "-D", "high-availability.type=file"), "'high-availability.cluster-id'"),
        (("-z",), "Option '-z' requires an argument"),
    ],
)
def test_a_namespace_that_says_nothing_is_refused(
    shell: Shell, tmp_path: Path, command: str, words: tuple[str, ...], says: str
) -> None:
    program = tmp_path / "program.py"
    program.touch()
    last = {"list": (), "info": (str(program),), "run": (str(program),)}.get(command, ("0a" * 16,))
    outcome = shell(command, *words, *(last if len(words) > 1 else ()))
    first = outcome.err.splitlines()[0]
    assert (outcome.code, says in first, outcome.out) == (1, True, ""), outcome.err


def test_where_nobody_leads_it_says_so(shell: Shell, tmp_path: Path) -> None:
    outcome = shell("list", *arguments(definitions(tmp_path)))
    assert outcome.code != 0
    assert "no driver of the cluster leads now" in outcome.err
