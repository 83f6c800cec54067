"""Savepoints, stops, checkpoints and disposals over a real socket: begun once, asked about, and refused."""

import logging
from pathlib import Path

import pytest

from headrace.core.barriers import SavepointFormatType
from headrace.gateways.errors import CheckpointFailedError
from tests.unit.rest.sample_cluster import RUNNING_JOB, UNKNOWN_JOB
from tests.unit.rest.served_cluster import Answer, ServedCluster, served_cluster

JOB = f"/jobs/{RUNNING_JOB.hex()}"
TRIGGER = "0123456789abcdef" * 2


def done(cluster: ServedCluster, path: str) -> Answer:
    return cluster.get_until(path, lambda found: found["status"]["id"] == "COMPLETED")


def test_a_savepoint_is_begun_once_for_its_trigger_id_and_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_cluster(tmp_path, monkeypatch) as cluster:
        body = {"target-directory": "/savepoints", "triggerId": TRIGGER}
        for _ in range(2):
            answer = cluster.ask("POST", f"{JOB}/savepoints", body)
            assert (answer.status, answer.json) == (202, {"request-id": TRIGGER})
        found = done(cluster, f"{JOB}/savepoints/{TRIGGER}").json
        assert found["operation"] == {"location": "file:/savepoints/savepoint-000102-0123456789ab"}
        assert cluster.dispatcher.savepoints == [("savepoint", "/savepoints")]
        assert cluster.dispatcher.cancelled == []


def test_a_savepoint_that_cancels_does_so_once_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"execution.checkpointing.savepoint-dir": "/configured"}
    with served_cluster(tmp_path, monkeypatch, settings) as cluster:
        answer = cluster.ask("POST", f"{JOB}/savepoints", {"cancel-job": True})
        done(cluster, f"{JOB}/savepoints/{answer.json['request-id']}")
        assert cluster.dispatcher.savepoints == [("savepoint", "/configured")]
        assert cluster.dispatcher.cancelled == [RUNNING_JOB]


def test_a_stop_is_asked_about_as_a_savepoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_cluster(tmp_path, monkeypatch) as cluster:
        answer = cluster.ask("POST", f"{JOB}/stop", {"targetDirectory": "/s", "drain": True})
        assert answer.status == 202
        found = done(cluster, f"{JOB}/savepoints/{answer.json['request-id']}").json
        assert found["operation"]["location"].startswith("file:/s/")
        assert cluster.dispatcher.savepoints == [("drain", "/s")]


@pytest.mark.parametrize("given", ["t", "yes", "on", "1", "", 1.0, [True], {}])
@pytest.mark.parametrize(("route", "name"), [("savepoints", "cancel-job"), ("stop", "drain")])
def test_what_flink_s_mapper_takes_for_no_boolean_is_refused_and_ends_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, route: str, name: str, given: object
) -> None:
    with served_cluster(tmp_path, monkeypatch) as cluster:
        body = {name: given, "targetDirectory": "/s", "target-directory": "/s"}
        assert cluster.ask("POST", f"{JOB}/{route}", body).status == 400
        assert cluster.dispatcher.savepoints == []


@pytest.mark.parametrize(
    ("given", "taken"),
    [("true", "drain"), ("True", "drain"), (1, "drain"), ("false", "stop"), (0, "stop")],
)
def test_names_of_booleans_and_whole_numbers_are_taken_as_by_flink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: object, taken: str
) -> None:
    with served_cluster(tmp_path, monkeypatch) as cluster:
        answer = cluster.ask("POST", f"{JOB}/stop", {"drain": given, "targetDirectory": "/s"})
        done(cluster, f"{JOB}/savepoints/{answer.json['request-id']}")
        assert cluster.dispatcher.savepoints == [(taken, "/s")]


def test_a_relative_folder_is_one_of_the_clusters_process_and_told_without_detours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with served_cluster(tmp_path, monkeypatch) as cluster:
        answer = cluster.ask("POST", f"{JOB}/stop", {"targetDirectory": "a/../savepoints"})
        done(cluster, f"{JOB}/savepoints/{answer.json['request-id']}")
        assert cluster.dispatcher.savepoints == [("stop", str(tmp_path / "savepoints"))]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({}, SavepointFormatType.CANONICAL),
        ({"formatType": "CANONICAL"}, SavepointFormatType.CANONICAL),
        ({"formatType": "NATIVE"}, SavepointFormatType.NATIVE),
    ],
)
@pytest.mark.parametrize(
    ("path", "folder"), [("savepoints", "target-directory"), ("stop", "targetDirectory")]
)
def test_savepoints_have_the_format_that_was_asked_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    folder: str,
    body: dict[str, str],
    wanted: SavepointFormatType,
) -> None:
    with served_cluster(tmp_path, monkeypatch) as cluster:
        answer = cluster.ask("POST", f"{JOB}/{path}", {folder: "/saved", **body})
        assert answer.status == 202
        done(cluster, f"{JOB}/savepoints/{answer.json['request-id']}")
        assert cluster.dispatcher.savepoint_formats == [wanted]


def test_a_format_that_nobody_knows_is_refused(cluster: ServedCluster) -> None:
    for path in ("savepoints", "stop"):
        answer = cluster.ask("POST", f"{JOB}/{path}", {"formatType": "PARQUET"})
        assert answer.status == 400
        assert "formatType" in answer.errors


def test_without_a_folder_a_savepoint_is_refused_by_the_name_that_the_body_has(
    cluster: ServedCluster,
) -> None:
    for path, name in (("savepoints", "target-directory"), ("stop", "targetDirectory")):
        answer = cluster.ask("POST", f"{JOB}/{path}", b"")
        assert answer.status == 400
        assert f"Property [{name}] must be provided." in answer.errors


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("savepoints", {"target-directory": "/savepoints"}),
        ("stop", {"targetDirectory": "/savepoints"}),
        ("checkpoints", {}),
    ],
)
def test_what_is_asked_of_an_unknown_job_begins_and_fails(
    cluster: ServedCluster, path: str, body: dict[str, str]
) -> None:
    unknown = f"/jobs/{UNKNOWN_JOB.hex()}"
    answer = cluster.ask("POST", f"{unknown}/{path}", body)
    assert answer.status == 202
    where = "checkpoints" if path == "checkpoints" else "savepoints"
    found = done(cluster, f"{unknown}/{where}/{answer.json['request-id']}").json["operation"]
    failure = found["failureCause" if path == "checkpoints" else "failure-cause"]
    assert str(UNKNOWN_JOB) in failure["stack-trace"]


@pytest.mark.parametrize("path", ["savepoints", "stop"])
def test_a_savepoint_without_a_folder_is_refused_whether_the_job_is_known_or_not(
    cluster: ServedCluster, path: str
) -> None:
    answer = cluster.ask("POST", f"/jobs/{UNKNOWN_JOB.hex()}/{path}", b"")
    assert (answer.status, "must be provided." in answer.errors) == (400, True)


def test_what_became_of_savepoints_from_outside_is_told_where_the_cluster_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with served_cluster(tmp_path, monkeypatch) as cluster:
        for path, body in (
            ("savepoints", {"target-directory": "/one"}),
            ("stop", {"targetDirectory": "/two"}),
        ):
            answer = cluster.ask("POST", f"{JOB}/{path}", body)
            done(cluster, f"{JOB}/savepoints/{answer.json['request-id']}")
        cluster.dispatcher.failure = CheckpointFailedError("the disk is full")
        answer = cluster.ask("POST", f"{JOB}/stop", {"targetDirectory": "/three"})
        done(cluster, f"{JOB}/savepoints/{answer.json['request-id']}")
    told = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    logged = [one.getMessage() for one in caplog.records if one.levelno == logging.INFO]
    begin = f"a savepoint of job {RUNNING_JOB}, requested over REST,"
    assert told == [
        f"{begin} is complete: file:/one/savepoint-000102-0123456789ab",
        f"{begin} is complete: file:/two/savepoint-000102-0123456789ab",
    ]
    assert f"{begin} has failed: the disk is full" in logged


def test_a_relative_path_of_a_savepoint_is_not_deleted_and_told_whole(
    cluster: ServedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = cluster.ask("POST", "/savepoint-disposal", {"savepoint-path": "saved/savepoint-1"})
    assert answer.status == 400
    assert "the path 'saved/savepoint-1' is relative" in answer.errors
    assert f"{tmp_path}/saved/savepoint-1" in answer.errors


def test_a_checkpoint_tells_its_id_and_a_failure_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_cluster(tmp_path, monkeypatch) as cluster:
        answer = cluster.ask("POST", f"{JOB}/checkpoints", {"checkpointType": "FULL"})
        assert answer.status == 202
        found = done(cluster, f"{JOB}/checkpoints/{answer.json['request-id']}").json
        assert found["operation"] == {"checkpointId": 4}
        assert cluster.dispatcher.full_checkpoints == [True]
        assert (
            cluster.ask("POST", f"{JOB}/checkpoints", {"checkpointType": "INCREMENTAL"}).status
            == 400
        )
        cluster.dispatcher.failure = ValueError("the disk is full")
        answer = cluster.ask("POST", f"{JOB}/checkpoints")
        cause = done(cluster, f"{JOB}/checkpoints/{answer.json['request-id']}").json["operation"]
        cause["failureCause"].pop("serialized-throwable")
        assert cause == {
            "failureCause": {"class": "ValueError", "stack-trace": "ValueError: the disk is full"}
        }


def test_what_is_no_savepoint_is_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    with served_cluster(tmp_path, monkeypatch) as cluster:
        answer = cluster.ask("POST", "/savepoint-disposal", {"savepoint-path": str(precious)})
        assert answer.status == 200
        found = done(cluster, f"/savepoint-disposal/{answer.json['request-id']}").json
        reason = found["operation"]["failure-cause"]["stack-trace"]
        assert reason.startswith(f"there is no completed checkpoint or savepoint at {precious}")
        assert (precious / "file").exists()
        assert cluster.get(f"/savepoint-disposal/{TRIGGER}").status == 404
