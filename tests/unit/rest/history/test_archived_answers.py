"""Answers of a cluster, of an archive and of a history server about one ended job: they are the same."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobVertexId
from headrace.rest.history.archived_answers import (
    archived_answers,
    archived_paths,
    archived_routes,
)
from headrace.rest.history.ended_job_view import EndedJobView
from tests.unit.rest.history.archived_jobs import (
    END_MS,
    archive_of,
    catalog_of,
    failed_job,
    no_metrics,
)
from tests.unit.rest.history.served_history import ServedHistory, served_history
from tests.unit.rest.sample_cluster import COUNTER, FAILED_JOB, SOURCE, subtask
from tests.unit.rest.served_cluster import ServedCluster, served_cluster

SETTINGS = {"rest.port": "0", "s3.secret-key": "hidden", "parallelism.default": "2"}


@pytest.fixture(scope="module")
def answers() -> dict[str, bytes]:
    job = failed_job()
    view = EndedJobView(job, Settings(SETTINGS), END_MS, no_metrics(FAILED_JOB))
    return dict(archived_answers(view, archived_paths(job)))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    home = tmp_path_factory.mktemp("live")
    with (
        pytest.MonkeyPatch.context() as patch,
        served_cluster(home, patch, SETTINGS, clock=ManualClock(END_MS)) as served,
    ):
        yield served


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHistory]:
    home = tmp_path_factory.mktemp("history")
    folder = home / "archives"
    folder.mkdir()
    content = archive_of(failed_job(), Settings(SETTINGS))
    (folder / FAILED_JOB.hex()).write_bytes(content)
    with pytest.MonkeyPatch.context() as patch, served_history(home, patch, folder) as served:
        yield served


def test_each_archived_route_has_an_answer(answers: dict[str, bytes]) -> None:
    job, subtask = f"/jobs/{FAILED_JOB.hex()}", f"vertices/{COUNTER.hex()}/subtasks/1"
    for path in (
        job,
        f"{job}/metrics-history",
        f"{job}/jobmanager/config",
        f"{job}/{subtask}/attempts/0",
        f"{job}/{subtask}/attempts/1/accumulators",
        f"{job}/checkpoints/details/3/subtasks/{COUNTER.hex()}",
    ):
        assert path in answers
    templates = {_template(path) for path in answers}
    assert templates == {route.path for route in archived_routes()}


def _template(path: str) -> str:
    """Return the route of a path of the sample job."""
    path = path.replace(FAILED_JOB.hex(), "{jobid}")
    for vertex in (SOURCE, COUNTER):
        path = path.replace(vertex.hex(), "{vertexid}")
    parts = path.split("/")
    names = {"subtasks": "{subtaskindex}", "attempts": "{attempt}", "details": "{checkpointid}"}
    for number, part in enumerate(parts):
        if part.isdigit():
            parts[number] = names[parts[number - 1]]
    return "/".join(parts)


def test_the_archive_says_what_the_cluster_says(
    answers: dict[str, bytes], live: ServedCluster
) -> None:
    for path, body in answers.items():
        if path != "/jobs/overview":
            found = live.get(path)
            assert (found.status, found.body) == (200, body), path
    (job,) = json.loads(answers["/jobs/overview"])["jobs"]
    assert job in live.get("/jobs/overview").json["jobs"]
    assert set(job) == {
        "jid", "name", "jobType", "schedulerType", "start-time", "end-time", "duration", "state",
        "last-modification", "tasks", "pending-operators",
    }  # fmt: skip


def test_the_history_server_says_what_the_archive_says(
    answers: dict[str, bytes], history: ServedHistory
) -> None:
    for path, body in answers.items():
        found = history.get(path)
        assert (found.status, found.body) == (200, body), path
        assert found.headers["content-type"] == "application/json; charset=UTF-8"


def test_the_archive_of_a_large_job_is_compressed_and_says_the_same(tmp_path: Path) -> None:
    job = failed_job()
    vertices = tuple(
        msgspec.structs.replace(
            job.details.vertices[0],
            vertex_id=JobVertexId(number.to_bytes(16, "big")),
            name=f"vertex {number}",
            subtasks=tuple(subtask(index) for index in range(10)),
            parallelism=10,
        )
        for number in range(150)
    )
    large = msgspec.structs.replace(
        job, details=msgspec.structs.replace(job.details, vertices=vertices)
    )
    file = tmp_path / FAILED_JOB.hex()
    file.write_bytes(archive_of(large))
    text = gzip.decompress(file.read_bytes())
    assert len(text) > 10 * file.stat().st_size
    said = {entry["path"]: entry["json"] for entry in json.loads(text)["archive"]}
    view = EndedJobView(large, Settings(), END_MS, no_metrics(FAILED_JOB))
    paths = archived_paths(large)
    assert said == {path: body.decode() for path, body in archived_answers(view, paths)}
    catalog = catalog_of(tmp_path, work_directory=tmp_path / "work")
    catalog.refresh()
    for path in list(said)[:: len(said) // 50]:
        if path != "/jobs/overview":
            assert catalog.answer(FAILED_JOB.hex(), path) == said[path].encode()


def test_a_job_with_a_very_long_name_is_listed_all_the_same(tmp_path: Path) -> None:
    job = failed_job()
    named = msgspec.structs.replace(
        job, overview=msgspec.structs.replace(job.overview, name="\0" * 100_000)
    )
    (tmp_path / FAILED_JOB.hex()).write_bytes(archive_of(named))
    catalog = catalog_of(tmp_path, work_directory=tmp_path / "work")
    catalog.refresh()
    (shown,) = json.loads(catalog.overviews())["jobs"]
    assert shown["name"] == "\0" * 1_000


def test_archives_hold_no_secret(answers: dict[str, bytes]) -> None:
    assert b"hidden" not in b"".join(answers.values())
    found = json.loads(answers[f"/jobs/{FAILED_JOB.hex()}/jobmanager/config"])
    assert {"key": "s3.secret-key", "value": "******"} in found


def test_a_path_that_the_cluster_answers_with_an_error_is_not_in_the_archive(
    answers: dict[str, bytes], live: ServedCluster, history: ServedHistory
) -> None:
    path = f"/jobs/{FAILED_JOB.hex()}/checkpoints/details/3/subtasks/{SOURCE.hex()}"
    assert path not in answers
    assert live.get(path).status == history.get(path).status == 404
