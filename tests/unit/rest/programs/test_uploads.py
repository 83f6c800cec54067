"""The routes of uploaded programs, and what hostile uploads come to."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.rest.served_cluster import Answer, ServedCluster, served_cluster

UPLOADS = "headrace-web-upload"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uploads") / UPLOADS


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    settings = {
        "web.submit.enable": "true",
        "web.upload.dir": str(folder.parent),
        "headrace.web.upload.size-max": "1000",
    }
    with (
        pytest.MonkeyPatch.context() as patch,
        served_cluster(tmp_path_factory.mktemp("home"), patch, settings) as served,
    ):
        yield served


@pytest.fixture
def cluster(server: ServedCluster, folder: Path) -> Iterator[ServedCluster]:
    """The server, which has no program after each test."""
    yield server
    for file in files_in(folder):
        file.unlink()


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.exists() else []


def upload(
    cluster: ServedCluster, name: str, content: bytes = b"print()", end: bytes = b"--"
) -> Answer:
    body = (
        f'--b\r\nContent-Disposition: form-data; name="jarfile"; filename="{name}"\r\n\r\n'.encode()
        + content + b"\r\n--b" + end + b"\r\n"
    )  # fmt: skip
    headers = {
        "Authorization": f"Bearer {cluster.token}",
        "Content-Type": "multipart/form-data; boundary=b",
    }
    return cluster.ask("POST", "/jars/upload", body, headers=headers)


def test_a_program_is_uploaded_listed_and_deleted(cluster: ServedCluster) -> None:
    answer = upload(cluster, "job.py")
    assert (answer.status, answer.json["status"]) == (200, "success")
    listed = cluster.get("/jars").json
    (file,) = listed["files"]
    assert listed["address"] == cluster.server.address
    assert answer.json["filename"].endswith(f"/{UPLOADS}/{file['id']}")
    assert file["name"] == "job.py"
    assert file["uploaded"] > 0
    assert file["entry"] == [{"name": "job.py", "description": None}]
    assert cluster.ask("DELETE", f"/jars/{file['id']}").json == {}
    assert cluster.get("/jars").json["files"] == []


@pytest.mark.parametrize(
    ("name", "content", "end", "said"),
    [
        ("job.jar", b"x", b"--", ".py, .zip, .whl"),
        ("", b"x", b"--", "Exactly 1 file"),
        ("job.py", b"x" * 2_000, b"--", "headrace.web.upload.size-max"),
        ("job.py", b"x", b"", "Exactly 1 file"),
        ("job.py", b"x", b"\r\n\r\nmore", "Exactly 1 file"),
        ("job.py", b"x", b"?", "is not followed by a line end"),
    ],
)
def test_what_is_refused_leaves_nothing(
    cluster: ServedCluster, folder: Path, name: str, content: bytes, end: bytes, said: str
) -> None:
    answer = upload(cluster, name, content, end)
    assert (answer.status, said in answer.errors) == (400, True), answer.body
    assert files_in(folder) == []


def test_two_files_at_once_are_refused(cluster: ServedCluster, folder: Path) -> None:
    second = b'\r\nContent-Disposition: form-data; name="x"; filename="b.py"\r\n\r\n2\r\n--b--'
    answer = upload(cluster, "a.py", b"1", second)
    assert (answer.status, "Exactly 1 file" in answer.errors) == (400, True)
    assert files_in(folder) == []


@pytest.mark.parametrize("body", [b"", b"--b", b"{}", b"x" * 500])
def test_a_body_that_is_no_form_is_refused(cluster: ServedCluster, body: bytes) -> None:
    assert cluster.ask("POST", "/jars/upload", body).status == 400


@pytest.mark.parametrize(
    ("method", "suffix"),
    [("DELETE", ""), ("POST", "/run"), ("POST", "/plan"), ("GET", "/plan"), ("POST", "/run-application")],
)  # fmt: skip
@pytest.mark.parametrize(
    ("jar", "status", "text"),
    [
        ("nothing.py", 400, "File nothing.py does not exist in "),
        ("%00", 400, "File \0 does not exist in "),
        ("..%2F..%2Fsecret.py", 404, "Not found: /jars/../../secret.py"),
    ],
)
def test_an_unknown_program_is_named_with_its_folder(
    cluster: ServedCluster, method: str, suffix: str, jar: str, status: int, text: str
) -> None:
    answer = cluster.ask(method, f"/jars/{jar}{suffix}")
    assert answer.status == status
    assert answer.errors.startswith(text)
    assert status == 404 or answer.errors.endswith(f"{UPLOADS}.")


@pytest.mark.parametrize(
    "body", [{"parallelism": 0}, {"jobId": "xyz"}, {"claimMode": "KEEP"}, {"programArgsList": "a"}]
)
def test_a_body_with_a_wrong_value_is_refused(
    cluster: ServedCluster, body: dict[str, object]
) -> None:
    answer = cluster.ask("POST", "/jars/any.py/run", body)
    assert (answer.status, "did not match expected format" in answer.errors) == (400, True)


def test_a_cluster_of_one_program_takes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_cluster(tmp_path, monkeypatch) as cluster:
        for answer in (
            upload(cluster, "job.py"),
            cluster.ask("DELETE", "/jars/job.py"),
            cluster.ask("POST", "/jars/job.py/run"),
        ):
            assert (answer.status, "web.submit.enable" in answer.errors) == (403, True)
        assert cluster.get("/jars").json["files"] == []


def test_dashboards_show_their_page_of_programs_where_these_are_taken(
    cluster: ServedCluster,
) -> None:
    assert cluster.get("/config").json["features"]["web-submit"] is True
