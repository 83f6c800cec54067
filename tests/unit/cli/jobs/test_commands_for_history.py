"""Commands against a history server: each answers from an archive, or says in its first line why it cannot."""

from collections.abc import Iterator

import pytest

from tests.unit.cli.jobs.answers import COMMAND_LINES
from tests.unit.cli.shell import Shell
from tests.unit.rest.fake_cluster import JOB
from tests.unit.rest.history.archived_jobs import archive_of, failed_job
from tests.unit.rest.history.served_history import ServedHistory, served_history
from tests.unit.rest.sample_cluster import FAILED_JOB

ENDED = FAILED_JOB.hex()
STEERED = f"error: Job {ENDED} has ended, and a history server cannot control jobs: "
ONLY_RUNNING = f"error: Job {ENDED} has ended, and only a running job has /jobs/{ENDED}"
NO_LOGS = (
    "error: this is a history server, which shows jobs that have ended from their archives, and "
    "archives hold no log files: "
)
REFUSED = {
    "cancel": STEERED,
    "stop": STEERED,
    "savepoint": STEERED,
    "checkpoint": STEERED,
    "logs": NO_LOGS,
    "metrics": f"{ONLY_RUNNING}/metrics: ",
    "flamegraph": "error: 'Source: cities' has ended (it is ",
    "state": f"{ONLY_RUNNING}/state: its state is in its snapshots",
}
ANSWERED = {
    "list": "Waiting for response...",
    "rescale-info": "cities (FAILED)",
    "exceptions": "ValueError",
    "top": f"cities ({ENDED}): FAILED, ",
    "open": "http://127.0.0.1:",
}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHistory]:
    home = tmp_path_factory.mktemp("history")
    (home / "archives").mkdir()
    (home / "archives" / ENDED).write_bytes(archive_of(failed_job()))
    with (
        pytest.MonkeyPatch.context() as patch,
        served_history(home, patch, home / "archives") as served,
    ):
        yield served


def place_of(history: ServedHistory) -> tuple[str, str]:
    return "-m", history.server.address.partition("://")[2]


def test_every_command_for_jobs_is_in_one_of_the_tables() -> None:
    assert sorted([*REFUSED, *ANSWERED]) == sorted(COMMAND_LINES)


@pytest.mark.parametrize("command", REFUSED)
def test_what_needs_a_cluster_is_refused_in_the_first_line(
    shell: Shell, history: ServedHistory, command: str
) -> None:
    words = [ENDED if word == JOB else word for word in COMMAND_LINES[command]]
    outcome = shell(command, *place_of(history), *words)
    first, *_ = outcome.err.splitlines()
    assert first.startswith(REFUSED[command])
    assert outcome.code == 1


@pytest.mark.parametrize("command", ANSWERED)
def test_what_an_archive_holds_is_answered(
    shell: Shell, history: ServedHistory, command: str
) -> None:
    words = [ENDED if word == JOB else word for word in COMMAND_LINES[command]]
    outcome = shell(command, *place_of(history), *words)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.lines[0].startswith(ANSWERED[command])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("logs", "--list"), NO_LOGS),
        (("logs", "--stdout"), NO_LOGS),
        (("logs", "--file", "jobmanager.log.1"), NO_LOGS),
        (("logs", "1"), "and has no /taskmanagers: use a running cluster, with -m HOST:PORT"),
        (("metrics", "--of-jobmanager"), "and has no /jobmanager/metrics: use a running cluster"),
        (("savepoint", "-d", "/data/savepoint-1"), "use 'headrace savepoint dispose PATH'"),
        (("savepoint", "--result", "0a" * 16, ENDED), STEERED),
        (("state", "--snapshot", "latest", ENDED), "'headrace checkpoint show PATH'"),
        (("state", "enrich"), "error: no job is running: name one that has ended"),
        (("top", "--once"), "error: no job is running: name one that has ended"),
        (("flamegraph", "1"), "error: no job is running: name one that has ended"),
        (("cancel", "0c" * 16), f"error: Job {'0c' * 16} not found"),
    ],
)
def test_other_uses_are_refused_in_the_first_line_too(
    shell: Shell, history: ServedHistory, words: tuple[str, ...], told: str
) -> None:
    command, *rest = words
    outcome = shell(command, *place_of(history), *rest)
    first, *_ = outcome.err.splitlines()
    assert first.startswith("error: ") and told in first
    assert outcome.code == 1


def test_with_json_the_document_has_the_same_line(shell: Shell, history: ServedHistory) -> None:
    outcome = shell("logs", "--json", *place_of(history))
    assert outcome.code == 1
    assert "archives hold no log files" in outcome.out
