"""Every error of REST has the status and the text that Flink's clients know."""

import re

import pytest
from msgspec import structs

from headrace.core.ids import JobId, OperatorId
from headrace.gateways.checkpoint_statistics import CheckpointConfiguration, CheckpointStatistics
from headrace.gateways.errors import NothingCollectedError
from headrace.rest.client_protocol import MESSAGE
from tests.unit.rest.sample_cluster import (
    CHECKPOINT_CONFIGURATION,
    COUNTER,
    FAILED_JOB,
    RUNNING_JOB,
    TASK_MANAGER,
    UNKNOWN_JOB,
)
from tests.unit.rest.served_cluster import ServedCluster

JOB = f"/jobs/{RUNNING_JOB.hex()}"
VERTEX = f"{JOB}/vertices/{COUNTER.hex()}"
TM = f"/taskmanagers/{TASK_MANAGER}"
UNKNOWN = f"/jobs/{UNKNOWN_JOB.hex()}"
ERRORS = [
    ("GET", UNKNOWN, 404, f"Job {UNKNOWN_JOB.hex()} not found"),
    ("GET", f"{UNKNOWN}/checkpoints", 404, f"Job {UNKNOWN_JOB.hex()} not found"),
    ("GET", f"{UNKNOWN}/vertices/{COUNTER.hex()}", 404, "not found"),
    ("GET", f"{UNKNOWN}/plan", 404, "not found"),
    ("GET", f"{UNKNOWN}/exceptions", 404, "not found"),
    ("GET", f"{UNKNOWN}/status", 500, f"Could not find Flink job ({UNKNOWN_JOB.hex()})"),
    ("GET", f"{UNKNOWN}/execution-result", 404, "not found"),
    ("PATCH", UNKNOWN, 404, "Job could not be found."),
    ("PATCH", f"/jobs/{FAILED_JOB.hex()}", 409, "FAILED"),
    ("PATCH", f"{JOB}?mode=stop", 400, "has been removed"),
    ("PATCH", f"{JOB}?mode=bogus", 400, "Cannot resolve query parameter (mode)"),
    ("GET", f"{JOB}/vertices/{'f' * 32}", 404, f"JobVertex {'f' * 32} not found"),
    ("GET", f"{VERTEX}/subtasks/2", 404, f"Invalid subtask index for vertex {COUNTER.hex()}"),
    ("GET", f"{VERTEX}/subtasks/0/attempts/7", 404, "Invalid attempt num 7"),
    (
        "GET",
        f"{VERTEX}/subtasks/x",
        400,
        'Cannot resolve path parameter (subtaskindex) from value "x"',
    ),
    (
        "GET",
        f"{JOB}/checkpoints/details/9",
        404,
        "Could not find checkpointing statistics for checkpoint 9",
    ),
    (
        "GET",
        f"{JOB}/savepoints/{'0' * 32}",
        404,
        f"There is no savepoint operation with triggerId={'0' * 32}",
    ),
    ("GET", "/jobs/xyz", 400, 'Cannot resolve path parameter (jobid) from value "xyz"'),
    ("GET", "/taskmanagers/nobody", 500, "there is no TaskManager nobody"),
    ("GET", f"{TM}/logs/..%2Fsecret", 404, "Not found"),
    (
        "GET",
        f"{TM}/logs/secret",
        500,
        f"Failed to transfer file from TaskExecutor {TASK_MANAGER}: there is no log file 'secret'",
    ),
    ("GET", "/nowhere", 404, "Not found: /nowhere"),
    ("POST", "/overview", 404, "Not found: /overview"),
    ("OPTIONS", "/overview", 404, "Not found: /overview"),
    ("POST", "/jobs", 400, "cannot run a Java job graph"),
    (
        "PATCH",
        f"{JOB}/rescaling?parallelism=2",
        503,
        "Rescaling is temporarily disabled. See FLINK-12312.",
    ),
    ("GET", f"{JOB}/resource-requirements", 500, "does not support"),
]


@pytest.mark.parametrize(("method", "path", "status", "text"), ERRORS)
def test_errors_have_flinks_status_and_say_what_is_wrong(
    cluster: ServedCluster, method: str, path: str, status: int, text: str
) -> None:
    found = cluster.ask(method, path)
    assert found.status == status, found.body
    assert list(found.json) == ["errors"]
    assert text in found.errors


def test_metrics_of_an_unknown_job_are_an_empty_list(cluster: ServedCluster) -> None:
    assert cluster.get(f"{UNKNOWN}/metrics").json == []


def test_a_body_that_is_no_json_or_has_a_wrong_word_is_refused_and_unknown_fields_are_not(
    cluster: ServedCluster,
) -> None:
    for body in (b"{not json", {"formatType": "AVRO"}, [1]):
        found = cluster.ask("POST", f"{JOB}/savepoints", body)
        assert found.status == 400, found.body
        assert "Request did not match expected format" in found.errors
    body = {"target-directory": "/savepoints", "later": True}
    assert cluster.ask("POST", f"{JOB}/savepoints", body).status == 202


def test_a_job_without_checkpoints_has_neither_statistics_nor_a_configuration_of_them(
    cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def off(job_id: JobId) -> CheckpointConfiguration:
        return structs.replace(CHECKPOINT_CONFIGURATION, is_enabled=False)

    monkeypatch.setattr(cluster.dispatcher, "request_checkpoint_configuration", off)
    monkeypatch.setattr(cluster.dispatcher, "statistics", CheckpointStatistics())
    for end in ("", "/config"):
        found = cluster.get(f"/jobs/{FAILED_JOB.hex()}/checkpoints{end}")
        assert found.status == 404
        assert re.fullmatch("Checkpointing (is not|has not been) enabled.*", found.errors)


def test_an_operator_that_collects_nothing_is_not_found(
    cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(job_id: JobId, operator_id: OperatorId, *_: int) -> None:
        raise NothingCollectedError(str(job_id), str(operator_id))

    monkeypatch.setattr(cluster.dispatcher, "fetch_collected_results", refuse, raising=False)
    headers = {"Authorization": f"Bearer {cluster.token}", "Accept": MESSAGE}
    path = f"{JOB}/operators/{'0' * 32}/collected"
    answer = cluster.ask("GET", path, headers=headers)
    assert answer.status == 404
    assert b"collects no records" in answer.body
