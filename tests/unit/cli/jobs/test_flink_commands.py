"""`list`, `cancel`, `stop`, `savepoint` and `checkpoint`: Flink's arguments, lines and exit codes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.jobs.answers import (
    ONE_RUNNING,
    OTHER_JOB,
    STARTED,
    job_details,
    jobs,
    operation,
)
from tests.unit.cli.shell import Shell
from tests.unit.rest.fake_cluster import IN_PROGRESS, JOB, Answer, completed, fake_cluster, home_of

RULE = "-" * 62


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home_of(monkeypatch, tmp_path)
    return tmp_path


def test_list_prints_running_and_scheduled_jobs_oldest_first_in_flink_s_lines(shell: Shell) -> None:
    found = jobs(
        job_details(OTHER_JOB, "RESTARTING", STARTED + 1000, "arrivals"),
        job_details(JOB, "RUNNING"),
        job_details("0e" * 16, "FAILED"),
    )
    with fake_cluster(found) as cluster:
        outcome = shell("list", "-m", cluster.authority, "-D", "rest.retry.delay=1 s")
    assert outcome.code == 1  # the token is not known here
    with fake_cluster(found, token="") as cluster:
        outcome = shell("list", "-m", cluster.authority)
    assert outcome.code == 0
    assert outcome.lines == [
        "Waiting for response...",
        "------------------ Running/Restarting Jobs -------------------",
        f"18.11.2026 11:06:40 : {JOB} : departures (RUNNING)",
        f"18.11.2026 11:06:41 : {OTHER_JOB} : arrivals (RESTARTING)",
        RULE,
        "No scheduled jobs.",
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-r"], ["No running jobs."]),
        (
            ["--scheduled"],
            ["----------------------- Scheduled Jobs -----------------------", "CREATED", RULE],
        ),
        (
            ["-a"],
            [
                "No running jobs.",
                "----------------------- Scheduled Jobs -----------------------",
                "CREATED",
                RULE,
                "---------------------- Terminated Jobs -----------------------",
                "CANCELED",
                RULE,
            ],
        ),
    ],
)
def test_list_shows_the_kinds_of_jobs_that_options_ask_for(
    shell: Shell, options: list[str], says: list[str]
) -> None:
    found = jobs(job_details(OTHER_JOB, "CANCELED"), job_details(JOB, "CREATED"))
    with fake_cluster(found, token="") as cluster:
        outcome = shell("list", *options, "-m", cluster.authority)
    assert outcome.lines[0] == "Waiting for response..."
    assert len(outcome.lines) == len(says) + 1
    assert all(part in line for part, line in zip(says, outcome.lines[1:], strict=True))


def test_list_as_json_is_one_document_and_messages_go_to_standard_error(shell: Shell) -> None:
    found = jobs(job_details(JOB, "RUNNING"), job_details(OTHER_JOB, "FINISHED"))
    with fake_cluster(found, token="") as cluster:
        outcome = shell("list", "--json", "-m", cluster.authority)
        everything = shell("list", "--json", "-a", "-m", cluster.authority)
    assert [job["job-id"] for job in json.loads(outcome.out)["jobs"]] == [JOB]
    assert '"jid"' not in outcome.out
    assert outcome.err == "Waiting for response...\n"
    assert len(json.loads(everything.out)["jobs"]) == 2


def test_the_cluster_of_this_machine_is_found_by_its_file_with_its_token(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_cluster(ONE_RUNNING) as cluster:
        home_of(monkeypatch, tmp_path, cluster)
        assert shell("list").code == 0
        assert shell("job", "list", "-t", "remote").code == 0
    assert [one.headers["authorization"] for one in cluster.requests] == ["Bearer the-token"] * 2


def test_two_clusters_have_to_be_told_apart(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_cluster(ONE_RUNNING) as one, fake_cluster(ONE_RUNNING) as other:
        home_of(monkeypatch, tmp_path, one, other)
        outcome = shell("list")
        assert (outcome.code, outcome.out) == (1, "")
        assert f"  -m {one.authority}  job of {one.authority}" in outcome.err
        assert shell("list", "-m", other.authority).code == 0
    assert (len(one.requests), len(other.requests)) == (0, 1)


def test_cancel_sends_what_flink_sends_and_does_not_wait(shell: Shell) -> None:
    with fake_cluster({f"PATCH /jobs/{JOB}": Answer(202, {})}, token="") as cluster:
        outcome = shell("cancel", "-m", cluster.authority, JOB.upper())
        as_json = shell("job", "cancel", "--json", "-m", cluster.authority, JOB)
    assert outcome.lines == [f"Cancelling job {JOB}.", f"Cancelled job {JOB}."]
    assert cluster.requests[0].query == {"mode": ["cancel"]}
    assert json.loads(as_json.out) == {"job-id": JOB}


def test_cancel_of_an_unknown_job_says_so_and_ends_with_1(shell: Shell) -> None:
    missing = Answer(404, {"errors": ["Job could not be found.", "the stack\n\tat here"]})
    with fake_cluster({f"PATCH /jobs/{JOB}": missing}, token="") as cluster:
        outcome = shell("cancel", "-m", cluster.authority, JOB)
        as_json = shell("cancel", "--json", "-m", cluster.authority, JOB)
    assert outcome.code == 1
    assert outcome.err.startswith("error: Job could not be found. (status 404 of PATCH")
    assert " The program finished with the following exception:\n" in outcome.err
    assert outcome.err.rstrip().endswith("at here")
    assert json.loads(as_json.out)["errors"][0].startswith("Job could not be found.")


@pytest.mark.parametrize(
    ("arguments", "directory", "place", "format_type"),
    [
        (["-s", "/saved", JOB], "/saved", "to /saved.", "CANONICAL"),
        (["-s", JOB], None, "to default savepoint directory.", "CANONICAL"),
        ([JOB, "-s"], None, "to default savepoint directory.", "CANONICAL"),
        (["-s", "/saved", "--type", "Native", JOB], "/saved", "to /saved.", "NATIVE"),
    ],
)
def test_cancel_with_a_savepoint_is_deprecated_and_works(
    shell: Shell, arguments: list[str], directory: str | None, place: str, format_type: str
) -> None:
    savepoints = f"/jobs/{JOB}/savepoints"
    with fake_cluster(operation(savepoints, location="file:/s"), token="") as cluster:
        outcome = shell("cancel", "-m", cluster.authority, *arguments)
    assert outcome.lines == [
        'DEPRECATION WARNING: Cancelling a job with savepoint is deprecated. Use "stop" instead.',
        f"Cancelling job {JOB} with {format_type} savepoint {place}",
        f"Cancelled job {JOB}. Savepoint stored in file:/s.",
    ]
    (body,) = cluster.bodies(f"POST {savepoints}")
    assert (body["cancel-job"], body["formatType"]) == (True, format_type)
    assert body.get("target-directory") == directory


@pytest.mark.parametrize(
    ("options", "verb", "body"),
    [
        ([], "Suspending", {"drain": False, "formatType": "CANONICAL"}),
        (["-d"], "Draining", {"drain": True, "formatType": "CANONICAL"}),
        (
            ["--drain", "-p", "/saved", "-type", "canonical"],
            "Draining",
            {"drain": True, "formatType": "CANONICAL", "targetDirectory": "/saved"},
        ),
        (
            ["--savepointPath", "/saved", "--type", "CANONICAL"],
            "Suspending",
            {"drain": False, "formatType": "CANONICAL", "targetDirectory": "/saved"},
        ),
        (["-type", "NATIVE"], "Suspending", {"drain": False, "formatType": "NATIVE"}),
        (["-d", "--type", "native"], "Draining", {"drain": True, "formatType": "NATIVE"}),
    ],
)
def test_stop_takes_a_savepoint_and_polls_where_savepoints_are(
    shell: Shell, options: list[str], verb: str, body: dict[str, Any]
) -> None:
    answers = operation(f"/jobs/{JOB}/stop", f"/jobs/{JOB}/savepoints", location="file:/s")
    with fake_cluster(answers, token="") as cluster:
        outcome = shell("stop", *options, "-m", cluster.authority, JOB)
    assert outcome.lines == [
        f'{verb} job "{JOB}" with a {body["formatType"]} savepoint.',
        f"Triggering stop-with-savepoint for job {JOB}.",
        "Waiting for response...",
        "Savepoint completed. Path: file:/s",
    ]
    (sent,) = cluster.bodies(f"POST /jobs/{JOB}/stop")
    assert {key: sent[key] for key in sent if key != "triggerId"} == body


def test_stop_with_the_job_behind_p_uses_the_configured_directory_as_flink_does(
    shell: Shell,
) -> None:
    answers = operation(f"/jobs/{JOB}/stop", f"/jobs/{JOB}/savepoints", location="x")
    with fake_cluster(answers, token="") as cluster:
        assert shell("stop", "-m", cluster.authority, "-p", JOB).code == 0
    assert "targetDirectory" not in cluster.bodies(f"POST /jobs/{JOB}/stop")[0]


@pytest.mark.parametrize("option", ["-detached", "--detached"])
@pytest.mark.parametrize(
    ("command", "path"), [("stop", f"/jobs/{JOB}/stop"), ("savepoint", f"/jobs/{JOB}/savepoints")]
)
def test_detached_prints_the_trigger_id_and_does_not_wait(
    shell: Shell, option: str, command: str, path: str
) -> None:
    with fake_cluster(
        {f"POST {path}": Answer(202, {"request-id": "ab" * 16})}, token=""
    ) as cluster:
        outcome = shell(command, option, "-m", cluster.authority, JOB)
    assert outcome.lines[-1].endswith(f", triggerId: {'ab' * 16}")
    assert cluster.lines == [f"POST {path}"]


def test_what_became_of_a_detached_savepoint_or_stop_is_told_later(shell: Shell) -> None:
    trigger = "ab" * 16
    path = f"GET /jobs/{JOB}/savepoints/{trigger}"
    with fake_cluster({path: (IN_PROGRESS, completed(location="file:/s"))}, token="") as cluster:
        arguments = ["savepoint", "-m", cluster.authority, "--result", trigger.upper(), JOB]
        in_progress = shell(*arguments, "-detached")
        outcome = shell(*arguments)
    assert in_progress.out == f"Savepoint {trigger} of job {JOB} is in progress.\n"
    assert outcome.lines[0] == "Savepoint completed. Path: file:/s"
    assert (in_progress.code, outcome.code) == (0, 0)
    gone = Answer(404, {"errors": ["There is no savepoint operation"]})
    with fake_cluster({path: gone}, token="") as cluster:
        assert shell("savepoint", "--result", trigger, JOB, "-m", cluster.authority).code == 1
    assert "is not a trigger id" in shell("savepoint", "--result", "7", JOB).err


@pytest.mark.parametrize(
    ("arguments", "path"),
    [(["savepoint", JOB, "saved"], "savepoints"), (["stop", "-p", "saved", JOB], "stop")],
)
def test_a_relative_folder_of_a_detached_savepoint_is_said_to_be_the_cluster_s(
    shell: Shell, arguments: list[str], path: str
) -> None:
    with fake_cluster(operation(f"/jobs/{JOB}/{path}"), token="") as cluster:
        outcome = shell(*arguments, "-detached", "-m", cluster.authority)
    told = "'saved' is relative to the folder in which the cluster was started"
    assert (outcome.code, told in outcome.err) == (0, True)


@pytest.mark.parametrize("format_type", ["canonical", "native"])
def test_savepoint_waits_for_its_path(shell: Shell, format_type: str) -> None:
    path = f"/jobs/{JOB}/savepoints"
    answers = {**operation(path), f"GET {path}/*": (IN_PROGRESS, completed(location="file:/s"))}
    with fake_cluster(answers, token="") as cluster:
        outcome = shell("savepoint", "-m", cluster.authority, JOB, "/saved", "-type", format_type)
    assert outcome.lines == [
        f"Triggering savepoint for job {JOB}.",
        "Waiting for response...",
        "Savepoint completed. Path: file:/s",
        "You can resume your program from this savepoint with the run command.",
    ]
    (body,) = cluster.bodies(f"POST {path}")
    assert (body["target-directory"], body["formatType"], body["cancel-job"]) == (
        "/saved",
        format_type.upper(),
        False,
    )


def test_a_savepoint_that_fails_says_why_and_ends_with_1(shell: Shell) -> None:
    cause = {"class": "X", "stack-trace": "X: not all tasks run\n\tat y"}
    path = f"/jobs/{JOB}/savepoints"
    answers = {**operation(path), f"GET {path}/*": completed(**{"failure-cause": cause})}
    with fake_cluster(answers, token="") as cluster:
        outcome = shell("savepoint", "-m", cluster.authority, JOB)
    assert outcome.code == 1
    assert outcome.err.startswith("error: X: not all tasks run\n")
    assert "The program finished with the following exception:" in outcome.err


@pytest.mark.parametrize("option", ["-d", "--dispose"])
def test_a_savepoint_is_disposed_of_by_the_cluster(shell: Shell, option: str) -> None:
    with fake_cluster(operation("/savepoint-disposal"), token="") as cluster:
        outcome = shell("savepoint", option, "/saved/s-1", "-m", cluster.authority)
    assert outcome.lines == [
        "Disposing savepoint '/saved/s-1'.",
        "Waiting for response...",
        "Savepoint '/saved/s-1' disposed.",
    ]
    assert cluster.bodies("POST /savepoint-disposal")[0]["savepoint-path"] == "/saved/s-1"


@pytest.mark.parametrize(
    ("options", "kind", "line"),
    [
        ([], "CONFIGURED", f"Checkpoint 7 for job {JOB} completed."),
        (["-full"], "FULL", f"Checkpoint(FULL) 7 for job {JOB} completed."),
    ],
)
def test_checkpoint_triggers_one_and_tells_its_number(
    shell: Shell, options: list[str], kind: str, line: str
) -> None:
    path = f"/jobs/{JOB}/checkpoints"
    with fake_cluster(operation(path, checkpointId=7), token="") as cluster:
        outcome = shell("checkpoint", *options, "-m", cluster.authority, JOB)
        as_json = shell("job", "checkpoint", "--json", *options, "-m", cluster.authority, JOB)
    assert outcome.lines[:3] == [
        f"Triggering checkpoint for job {JOB}.",
        "Waiting for response...",
        line,
    ]
    assert cluster.bodies(f"POST {path}")[0]["checkpointType"] == kind
    assert json.loads(as_json.out) == {"job-id": JOB, "checkpoint-id": 7}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["cancel"], "Missing JobID. Specify a JobID to cancel a job."),
        (["stop"], "Missing JobID. Specify a JobID to stop a job."),
        (["savepoint"], "Missing JobID. Specify a Job ID to trigger a savepoint."),
        (
            ["savepoint", "-m", "127.0.0.1:1"],
            "Missing JobID. Specify a Job ID to trigger a savepoint.",
        ),
        (["checkpoint"], "Missing JobID. Specify a Job ID to manipulate a checkpoint."),
        (["checkpoint", "trigger"], "Missing JobID. Specify a Job ID to manipulate a checkpoint."),
        (["cancel", "12"], "'12' is not a job id, which has 32 hexadecimal digits"),
        (["list", "--bogus"], "No such option '--bogus'"),
        (["list", "-m", "nonsense"], "an address is host:port"),
        pytest.param(
            ["list", "-D", "client.timeuot=5 s"],
            "did you mean client.timeout?",
            marks=pytest.mark.slow,  # whoever looks for all options imports every module
        ),
        (["list", "-D", "client.timeout=soon"], "'soon': this is not a duration"),
        (["list", "-t", "yarn"], "'yarn' is not 'remote'"),
        (["savepoint", "lst"], "\"lst\" is not a valid action: did you mean 'list'?"),
        (["job", "lst"], "\"lst\" is not a valid action: did you mean 'list'?"),
        (["lsit"], "\"lsit\" is not a valid action: did you mean 'list'?"),
        (["rnu"], "\"rnu\" is not a valid action: did you mean 'run'?"),
        (["frobnicate"], '"frobnicate" is not a valid action: the actions are cancel, checkpoint,'),
        (["list", "-m", "127.0.0.1:1"], "nobody listens there"),
        (["list"], "no cluster of yours runs on this machine"),
    ],
)
def test_whatever_is_wrong_is_told_in_the_first_line_and_ends_with_1(
    shell: Shell, arguments: list[str], says: str
) -> None:
    outcome = shell(*arguments)
    first = outcome.err.splitlines()[0]
    assert first.startswith("error: ")
    assert says in first
    assert outcome.code == 1


def test_the_address_may_be_a_setting_as_with_flink(shell: Shell) -> None:
    with fake_cluster(ONE_RUNNING, token="") as cluster:
        host, _, port = cluster.authority.partition(":")
        assert shell("list", "-D", f"rest.address={host}", "-D", f"rest.port={port}").code == 0
        assert shell("list", "-D", f"rest.port={port}").code == 0
        assert shell("list", "-D", f"rest.address={cluster.authority}").code == 0
    assert len(cluster.requests) == 3


def test_texts_of_the_cluster_do_not_steer_the_terminal(shell: Shell) -> None:
    hostile = job_details(JOB, "RUNNING", name="a\x1b[2Jb\x9bc\rd")
    with fake_cluster(jobs(hostile), token="") as cluster:
        outcome = shell("list", "-m", cluster.authority)
    assert f"{JOB} : a\\x1b[2Jb\\x9bc\\rd (RUNNING)" in outcome.out
    refused = Answer(404, {"errors": ["no\x1b[2J", "stack\x07\nmore"]})
    with fake_cluster({f"PATCH /jobs/{JOB}": refused}, token="") as cluster:
        assert not {"\x1b", "\x07"} & set(shell("cancel", "-m", cluster.authority, JOB).err)


def test_a_job_s_name_makes_no_line_of_its_own(shell: Shell) -> None:
    hostile = job_details(JOB, "RUNNING", name=f"a\n18.11.2026 11:06:40 : {OTHER_JOB} : b")
    with fake_cluster(jobs(hostile), token="") as cluster:
        outcome = shell("list", "-r", "-m", cluster.authority)
    assert len(outcome.lines) == 4
    assert f"{JOB} : a\\n18.11.2026" in outcome.lines[2]


def test_another_kind_of_server_is_told(shell: Shell) -> None:
    with fake_cluster({"GET /jobs/overview": [1, 2]}, token="") as cluster:
        outcome = shell("list", "-m", cluster.authority)
    assert (outcome.code, "is not a JSON object: check that http://" in outcome.err) == (1, True)


def test_who_no_longer_waits_is_told_that_the_cluster_goes_on(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    path = f"/jobs/{JOB}/savepoints"
    monkeypatch.setattr("headrace.rest.client.RestClient.result_of", interrupt)
    trigger = "ab" * 16
    with fake_cluster({f"POST {path}": {"request-id": trigger}}, token="") as cluster:
        outcome = shell("savepoint", "-m", cluster.authority, JOB)
    assert outcome.code == 130
    told = f"to see its result: headrace savepoint --result {trigger} {JOB}"
    assert outcome.err.split() == [*told.split(), "interrupted"]


def test_who_waits_long_is_told_so_now_and_then(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(_: object, path: str, request_id: str, tell: Callable[[float], None]) -> Any:
        for seconds in (1.0, 9.0, 10.5, 12.0, 25.0):
            tell(seconds)
        return {"location": "x"}

    path = f"/jobs/{JOB}/savepoints"
    monkeypatch.setattr("headrace.rest.client.RestClient.result_of", slow)
    with fake_cluster({f"POST {path}": {"request-id": "ab"}}, token="") as cluster:
        outcome = shell("savepoint", "-m", cluster.authority, JOB)
    assert outcome.err.splitlines() == ["still waiting after 10 s", "still waiting after 25 s"]
