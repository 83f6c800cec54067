"""The history server over HTTP: what it answers, and to whom."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.rest.history.archive_file import pack_archive
from headrace.rest.history.history_server import archive_folders
from headrace.rest.history.options import HISTORY_REFRESH_INTERVAL
from tests.unit.rest.history.archived_jobs import (
    END_MS,
    archive_of,
    failed_job,
    job_id_of,
    overview_of,
    small_archive,
    write_archives,
)
from tests.unit.rest.history.served_history import ServedHistory, served_history
from tests.unit.rest.sample_cluster import FAILED_JOB, START_MS
from tests.unit.rest.served_cluster import served_cluster


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHistory]:
    home = tmp_path_factory.mktemp("history")
    write_archives(home / "first", range(1, 4))
    write_archives(home / "second", [7])
    with (
        pytest.MonkeyPatch.context() as patch,
        served_history(home, patch, home / "first", home / "second") as served,
    ):
        yield served


def test_a_dashboard_is_told_that_this_is_history(history: ServedHistory) -> None:
    found = history.get("/config").json
    assert found["features"] == {
        "web-submit": False,
        "web-cancel": False,
        "web-rescale": False,
        "web-history": True,
        "web-spark": False,
    }
    assert found["refresh-interval"] == 3000


def test_jobs_of_all_folders_are_listed_the_newest_first(history: ServedHistory) -> None:
    found = history.get("/jobs/overview").json["jobs"]
    assert [job["jid"] for job in found] == [job_id_of(number) for number in (7, 3, 2, 1)]
    assert found[0]["state"] == "FINISHED"
    assert {job["id"] for job in history.get("/v1/jobs").json["jobs"]} == {
        job["jid"] for job in found
    }
    assert history.get("/overview").json["jobs-finished"] == 4


def test_an_archived_job_has_no_place_of_a_log(history: ServedHistory) -> None:
    assert history.get(f"/jobs/{job_id_of(1)}/jobmanager/log-url").json == {"url": ""}
    assert history.get(f"/jobs/{job_id_of(99)}/jobmanager/log-url").status == 404


def test_jobs_are_listed_as_applications_too(history: ServedHistory) -> None:
    found = history.get("/applications/overview").json["applications"]
    assert [each["id"] for each in found] == [job_id_of(number) for number in (7, 3, 2, 1)]
    assert found[0] == {
        "id": job_id_of(7),
        "name": "SingleJobApplication(cities)",
        "start-time": START_MS,
        "end-time": END_MS,
        "duration": 200,
        "status": "FINISHED",
        "jobs": {"FINISHED": 1},
    }


def test_an_application_is_shown_as_its_cluster_showed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, job = tmp_path / "archives", FAILED_JOB.hex()
    folder.mkdir()
    (folder / job).write_bytes(archive_of(failed_job()))
    paths = ("/applications/overview", f"/applications/{job}", f"/applications/{job}/exceptions")
    with served_cluster(tmp_path / "cluster", monkeypatch) as cluster:
        said = [cluster.get(path).json for path in paths]
    with served_history(tmp_path, monkeypatch, folder) as history:
        shown = [history.get(path).json for path in paths]
        settings = history.get(f"/v1/applications/{job}/jobmanager/config")
    of_job = [each for each in said[0]["applications"] if each["id"] == job]
    assert shown == [{"applications": of_job}, *said[1:]]
    assert (settings.status, settings.json) == (200, [])


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_an_answer_is_read_from_its_archive(history: ServedHistory, prefix: str) -> None:
    assert history.get(f"{prefix}/jobs/{job_id_of(2)}").json == {"jid": job_id_of(2)}


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        (f"/jobs/{job_id_of(99)}", 404, f"Job {job_id_of(99)} not found"),
        (f"/jobs/{job_id_of(1)}/plan", 404, "has no /jobs/"),
        ("/jobs/xyz", 400, 'Cannot resolve path parameter (jobid) from value "xyz"'),
        (f"/jobs/{job_id_of(1)}/vertices/1/backpressure", 404, "has ended, and only a running job"),
        (
            f"/v1/jobs/{job_id_of(1)}/vertices/1/flamegraph",
            404,
            "has ended, and only a running job",
        ),
        (
            f"/jobs/{job_id_of(1)}/metrics?get=uptime",
            404,
            "/metrics-history, which 'headrace open' draws, and",
        ),
        (f"/jobs/{job_id_of(99)}/metrics", 404, f"Job {job_id_of(99)} not found"),
        ("/jobs/..%2f..%2fetc%2fpasswd", 404, "Not found"),
        (f"/applications/{job_id_of(99)}", 404, f"Job {job_id_of(99)} not found"),
        (f"/applications/{job_id_of(99)}/exceptions", 404, f"Job {job_id_of(99)} not found"),
        (f"/applications/{job_id_of(1)}", 404, "does not contain its times"),
        (f"/applications/{job_id_of(1)}/exceptions", 404, "has no /jobs/"),
        ("/taskmanagers", 404, "has no /taskmanagers: use a running cluster"),
        ("/jobmanager/log", 404, "archives hold no log files"),
        ("/v1/taskmanagers/tm-1/logs/a.log", 404, "archives hold no log files"),
        ("/jobmanager/metrics", 404, "has no /jobmanager/metrics"),
        ("/jars", 404, "this is a history server"),
        (f"/jobs/{job_id_of(1)}/state", 404, "its state is in its snapshots"),
        (f"/jobs/{job_id_of(99)}/state", 404, f"Job {job_id_of(99)} not found"),
        ("/nothing/of/the/kind", 404, "Not found: /nothing/of/the/kind"),
    ],
)
def test_what_no_archive_has_is_an_error(
    history: ServedHistory, path: str, status: int, text: str
) -> None:
    found = history.get(path)
    assert (found.status, text in found.errors) == (status, True), found.errors


def test_paths_of_a_stranger_s_archive_that_are_no_routes_of_its_job_are_never_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, job, other = tmp_path / "archives", job_id_of(1), job_id_of(2)
    folder.mkdir()
    paths = sorted(
        ("/", "/config", "/jobs/overview", f"/jobs/{other}", f"/jobs/{job}/evil", f"/jobs/{job}")
    )
    answers = [(path, b'{"from":"a stranger"}') for path in paths]
    content = pack_archive(job, overview_of(job), answers, is_compressed=False)
    (folder / job).write_bytes(content)
    with served_history(tmp_path, monkeypatch, folder) as history:
        stranger = [path for path in paths if b"stranger" in history.get(path).body]
        assert history.get(f"/jobs/{other}").status == 404
    assert stranger == [f"/jobs/{job}"]


@pytest.mark.parametrize("method", ["PATCH", "POST", "DELETE", "PUT"])
def test_nothing_can_be_changed(history: ServedHistory, method: str) -> None:
    assert history.ask(method, f"/jobs/{job_id_of(1)}").status == 404


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("PATCH", f"/jobs/{job_id_of(1)}", "has ended, and a history server cannot control jobs"),
        ("POST", f"/jobs/{job_id_of(1)}/stop", "'headrace run -s PATH PROGRAM' restarts it"),
        ("POST", f"/jobs/{job_id_of(99)}/savepoints", f"Job {job_id_of(99)} not found"),
        ("POST", "/savepoint-disposal", "use 'headrace savepoint dispose PATH'"),
        ("DELETE", "/cluster", "has no /cluster: use a running cluster"),
    ],
)
def test_who_wants_to_change_something_is_told_why_not(
    history: ServedHistory, method: str, path: str, text: str
) -> None:
    found = history.ask(method, path)
    assert (found.status, text in found.errors) == (404, True), found.errors


def test_who_has_not_the_token_is_told_nothing(history: ServedHistory) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        for path in ("/jobs/overview", "/config", f"/jobs/{job_id_of(1)}"):
            assert history.ask("GET", path, headers=headers).status == 401


def test_another_host_and_another_origin_are_refused(history: ServedHistory) -> None:
    token = {"Authorization": f"Bearer {history.token}"}
    for header in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        assert history.ask("GET", "/jobs", headers={**token, **header}).status == 403


def test_a_browser_signs_in_with_the_token(history: ServedHistory) -> None:
    body = f'{{"token":"{history.token}"}}'
    found = history.ask("POST", "/session", headers={"Content-Type": "application/json"}, body=body)
    cookie = found.headers["set-cookie"].partition(";")[0]
    assert (
        history.ask(
            "GET", "/jobs", headers={"Cookie": cookie, "Sec-Fetch-Site": "same-origin"}
        ).status
        == 200
    )


def test_a_new_archive_appears_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "archives"
    folder.mkdir()
    quick = {"historyserver.archive.fs.refresh-interval": "10 ms"}
    with served_history(tmp_path, monkeypatch, folder, settings=quick) as history:
        assert history.get("/jobs").json == {"jobs": []}
        (folder / ".new").write_bytes(small_archive(job_id_of(5)))
        (folder / ".new").rename(folder / job_id_of(5))
        for _ in range(5_000):
            if history.get("/jobs").json["jobs"]:
                break
        assert history.get(f"/jobs/{job_id_of(5)}").json == {"jid": job_id_of(5)}


def test_looks_at_the_folders_are_never_without_a_pause() -> None:
    settings = Settings({HISTORY_REFRESH_INTERVAL.key: "0"})
    with pytest.raises(ConfigurationError, match="it must be at least 1 ms"):
        settings.get_option(HISTORY_REFRESH_INTERVAL)


def test_without_a_folder_there_is_no_history() -> None:
    with pytest.raises(ConfigurationError, match="set the folders"):
        archive_folders(Settings())


def test_the_folder_of_a_cluster_is_taken_where_none_is_named_for_the_server(
    tmp_path: Path,
) -> None:
    settings = {"jobmanager.archive.fs.dir": str(tmp_path)}
    assert archive_folders(Settings(settings)) == (str(tmp_path),)
    settings["historyserver.archive.fs.dir"] = f"/a, s3://b/c ,{tmp_path},/a"
    assert archive_folders(Settings(settings)) == ("/a", "s3://b/c", str(tmp_path))


def test_who_comes_while_too_many_wait_is_asked_to_come_again(
    history: ServedHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.rest.history.history_app._WAITING_MAX", 0)
    found = history.get(f"/jobs/{job_id_of(2)}")
    assert (found.status, "try again" in found.errors) == (503, True)
