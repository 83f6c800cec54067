"""Commands that ask a cluster start quickly, because they import next to nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli.main import COMMANDS
from tests.unit.cli.jobs.answers import ONE_RUNNING
from tests.unit.rest.fake_cluster import fake_cluster, home_of

HEAVY = (
    "pyspark",
    "py4j",
    "pyarrow",
    "numpy",
    "pandas",
    "pydantic",
    "fastapi",
    "uvicorn",
    "uvloop",
    "cloudpickle",
)
OF_CLUSTERS = sorted(name for name, entry in COMMANDS.items() if ".cli.jobs." in entry.place)


def imported_by(*arguments: str) -> list[str]:
    script = (
        "import sys\nfrom headrace.cli.main import main\n"
        f"try:\n    main({list(arguments)!r})\nexcept SystemExit as ended:\n    code = ended.code\n"
        f"print(code, [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    code, _, names = done.stderr.splitlines()[-1].partition(" ")
    assert code == "0", done.stderr
    return names.strip("[]").replace("'", "").split(", ") if names != "[]" else []


def test_a_list_of_jobs_imports_neither_spark_nor_arrow_nor_pydantic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_cluster(ONE_RUNNING) as cluster:
        home_of(monkeypatch, tmp_path, cluster)
        assert imported_by("list") == []
        assert imported_by("list", "--json", "-D", "client.timeout=5 s") == []


@pytest.mark.parametrize("command", OF_CLUSTERS)
def test_no_command_for_clusters_imports_them(command: str) -> None:
    assert len(OF_CLUSTERS) >= 12
    assert imported_by(command, "--help") == []


@pytest.mark.parametrize("command", ["list", "info", "stop"])
def test_of_the_commands_for_whole_clusters_only_the_start_of_one_does(command: str) -> None:
    assert imported_by("cluster", command, "--help") == []


def test_a_list_of_clusters_imports_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_cluster({}) as cluster:
        home_of(monkeypatch, tmp_path, cluster)
        assert imported_by("cluster", "list") == []


@pytest.mark.parametrize(
    "arguments", [("--help",), ("completion", "bash"), ("savepoint", "--help")]
)
def test_neither_do_help_and_completion(arguments: tuple[str, ...]) -> None:
    assert imported_by(*arguments) == []


@pytest.mark.slow
def test_a_list_of_jobs_starts_in_less_than_0_3_seconds_more_than_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def best_of(*arguments: str) -> float:
        found: list[float] = []
        for _ in range(7):
            before = os.times()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
            after = os.times()
            # The processor that the child took: others share the machine.
            found.append(
                after.children_user
                + after.children_system
                - before.children_user
                - before.children_system
            )
        return min(found)

    with fake_cluster(ONE_RUNNING) as cluster:
        home_of(monkeypatch, tmp_path, cluster)
        best_of("-m", "headrace", "list")
        assert best_of("-m", "headrace", "list") - best_of("-c", "pass") < 0.3
