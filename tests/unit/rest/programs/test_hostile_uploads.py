"""Whatever a form of files holds, it is kept in its folder under a plain name, or refused and nothing is left."""

import re
import socket
import stat
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.rest.programs.uploaded_programs import ENDINGS
from testkit.waiting import wait_until
from tests.unit.rest.hostile_requests import (
    ANSWER_TIMEOUT_S,
    exchange,
    logged_errors,
    request_bytes,
)
from tests.unit.rest.openapi_answers import DocumentedAnswers
from tests.unit.rest.served_cluster import Answer, ServedCluster, served_cluster

UPLOADS = "headrace-web-upload"
DEPTH = 4
"""Folders between the root that is watched and the one of uploads: names climb no further than that."""
PROGRAM_BYTES_MAX = 20_000
ZIP64_OF_MANY_DISKS = (
    b"PK\x06\x07"
    + struct.pack("<LQL", 1, 0, 5)
    + b"PK\x05\x06"
    + struct.pack("<HHHHLLH", 0, 0, 0, 0, 0, 0, 0)
)
ENDS = st.sampled_from([*ENDINGS, ".jar", ".PY", "", ".py/", ".py\0", ".py ", ".py.", ".zip"])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which all that a name can lead to lies."""
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def cluster(root: Path) -> Iterator[ServedCluster]:
    parent = root.joinpath(*map(str, range(DEPTH - 1)))
    settings = {
        "web.submit.enable": "true",
        "web.upload.dir": str(parent),
        "headrace.web.upload.size-max": str(PROGRAM_BYTES_MAX),
        "rest.server.max-content-length": str(4 * PROGRAM_BYTES_MAX),
    }
    for folder in (parent, root / "working", root / "temporary", root / "home"):
        folder.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root / "working")
        patch.setattr(tempfile, "tempdir", str(root / "temporary"))
        with served_cluster(root / "home", patch, settings) as served:
            yield served


@pytest.fixture(scope="module")
def documented(cluster: ServedCluster) -> DocumentedAnswers:
    return DocumentedAnswers(cluster.get("/openapi.json").json)


def files_of(root: Path) -> set[Path]:
    """Return all that lies below the root, without the programs and their folder."""
    return {each for each in root.rglob("*") if UPLOADS not in each.parts}


def take_programs(root: Path) -> list[Path]:
    """Return the programs that are kept, and all else in their folder; none of them stays."""
    found = [each for each in root.rglob(f"{UPLOADS}/*") if each.parent.name == UPLOADS]
    for each in found:
        status = each.lstat()
        assert stat.S_ISREG(status.st_mode) and not status.st_mode & 0o077, each
        each.unlink()
    return found


@st.composite
def names(draw: st.DrawFn) -> str:
    """Draw a name of a file: plain, long, of any signs, or one that leads elsewhere."""
    stem = draw(
        st.sampled_from(["job", "..", ".", "", "x" * 5_000, "/", "\0", "a\0b", "%2e%2e%2f", "~", "-rf", ".hidden"])
        | st.text(st.characters(exclude_characters='\r\n"\\', exclude_categories=["Cs"]), max_size=20)
    )  # fmt: skip
    way = draw(
        st.sampled_from(["", "./", "ROOT/", "ROOT/working/", "file://ROOT/", "C:\\\\"])
        | st.integers(1, DEPTH).map(lambda count: "../" * count)
        | st.integers(1, DEPTH).map(lambda count: "..\\\\" * count)
        | st.integers(1, DEPTH).map(lambda count: f"a/{'../' * (count + 1)}")
    )
    return f"{way}{stem}{draw(ENDS)}"


@st.composite
def dispositions(draw: st.DrawFn) -> str:
    """Draw the header of a part that names its file, in one of the ways in which headers name something, or in none."""
    name = draw(names())
    return draw(
        st.sampled_from(
            [
                f'form-data; name="jarfile"; filename="{name}"',
                f"form-data; name=jarfile; filename={quote(name, safe='/')}",
                f"form-data; name=jarfile; filename*=utf-8''{quote(name, safe='')}",
                f"form-data; name=jarfile; filename*=undefined''{quote(name, safe='')}",
                f"form-data; name=jarfile; filename*=idna''{quote(name, safe='')}",
                f"form-data; name=jarfile; filename*=unicode_escape''%5Cud800{quote(name, safe='')}",
                f"form-data; name=jarfile; filename*=a%00''{quote(name, safe='')}",
                f'form-data; name="jarfile"; filename*0="{name}"; filename*1="{name}"',
                f'form-data; filename*{"9" * 5_000}="{name}"',
                f'form-data; filename="{name}"; filename="/etc/passwd.py"',
                f'form-data; filename="{name}',
                f"form-data; filename=\"{name}\"; filename*=utf-8''..%2F..%2Fother.py",
                'attachment; filename=";filename=";filename=";filename=".py',
                ";" * 8_000,
                "form-data",
                "",
            ]
        )
    )


CONTENTS = st.sampled_from(
    [
        b"",
        b"print()",
        b"PK\x05\x06" + bytes(18),
        ZIP64_OF_MANY_DISKS,
        b"PK\x05\x06",
        b"x" * (PROGRAM_BYTES_MAX + 1),
        b"\r\n--",
        b"\r\n--bc",
    ]
) | st.binary(max_size=50)


@st.composite
def forms(draw: st.DrawFn, root: Path) -> bytes:
    """Draw a form of some parts, whole or not."""
    body = draw(st.sampled_from([b"", b"\r\n", b"preamble\r\n"]))
    for _ in range(draw(st.sampled_from([1, 1, 1, 0, 2, 3]))):
        disposition = draw(dispositions()).replace("ROOT", str(root))
        header = draw(
            st.sampled_from(
                ["Content-Disposition", "content-disposition", "X", "Content-Disposition\r\n :"]
            )
        )
        body += b"--b\r\n" + f"{header}: {disposition}\r\n".encode("utf-8", "replace")
        body += draw(st.sampled_from([b"", b"Content-Type: text/plain\r\n", b"\xff\xfe: \xff\r\n"]))
        body += b"\r\n" + draw(CONTENTS) + b"\r\n"
    body += draw(
        st.sampled_from([b"--b--\r\n", b"--b--", b"--b", b"--b?", b"", b"--b--\r\nepilogue"])
    )
    return body[: draw(st.integers(0, len(body)))] if draw(st.integers(0, 4)) == 0 else body


def form_of(name: str, content: bytes) -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; filename="{name}"\r\n\r\n'
    return head.encode() + content + b"\r\n--b--"


CONTENT_TYPES = st.sampled_from(
    [
        "multipart/form-data; boundary=b",
        'multipart/form-data; boundary="b"',
        "multipart/form-data; boundary=b",
        "MULTIPART/FORM-DATA; BOUNDARY=b",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=other",
        "multipart/form-data; boundary*=undefined''b",
        f"multipart/form-data; boundary*{'9' * 5_000}=b",
        f"multipart/form-data; boundary={'b' * 300}",
        "multipart/form-data" + ';a="' * 10_000,
        "multipart/form-data; boundary=\xe9",
        "multipart/mixed; boundary=b",
        "",
    ]
)


def sent(cluster: ServedCluster, content_type: str, body: bytes) -> Answer:
    answer = exchange(
        cluster, request_bytes("POST", "/jars/upload", head_of(cluster, content_type), body)
    )
    assert answer is not None
    return answer


def head_of(cluster: ServedCluster, content_type: str) -> list[tuple[str, str]]:
    return [
        ("Host", cluster.authority),
        ("Authorization", f"Bearer {cluster.token}"),
        ("Content-Type", content_type),
        ("Connection", "close"),
    ]


@given(data=st.data())
def test_a_form_is_kept_under_a_plain_name_or_refused(
    cluster: ServedCluster, documented: DocumentedAnswers, root: Path, data: st.DataObject
) -> None:
    before = files_of(root)
    content_type, body = data.draw(CONTENT_TYPES), data.draw(forms(root))
    with logged_errors() as errors:
        answer = sent(cluster, content_type, body)
        listed = cluster.get("/jars").json["files"]
    kept = take_programs(root)
    assert errors == []
    assert files_of(root) == before
    documented.check("POST", "/jars/upload", answer)
    assert answer.status in (200, 400), answer.body
    assert [each["id"] for each in listed] == [each.name for each in kept]
    if answer.status == 400:
        assert kept == []
        return
    (program,) = kept
    assert str(program) == answer.json["filename"]
    assert program.suffix in ENDINGS
    assert re.fullmatch("[A-Za-z0-9._+-]{41,200}", program.name)


def test_a_form_that_the_client_gives_up_leaves_nothing(cluster: ServedCluster, root: Path) -> None:
    body = form_of("job.py", b"print()")
    head = request_bytes(
        "POST", "/jars/upload", head_of(cluster, "multipart/form-data; boundary=b"), body
    )
    host, port = cluster.authority.split(":")

    def partial() -> list[Path]:
        return list(root.rglob(f"{UPLOADS}/.*.partial"))

    with logged_errors() as errors:
        with socket.create_connection((host, int(port)), ANSWER_TIMEOUT_S) as connection:
            connection.sendall(head[:-10])
            wait_until(lambda: bool(partial()), what="an upload that has begun")
        wait_until(lambda: not partial(), what="the end of the upload")
    assert errors == []
    assert take_programs(root) == []


@pytest.mark.parametrize("content", [ZIP64_OF_MANY_DISKS, b"print()", b"", b"PK\x05\x06"])
def test_an_archive_that_is_none_is_refused_and_leaves_nothing(
    cluster: ServedCluster, root: Path, content: bytes
) -> None:
    answer = sent(cluster, "multipart/form-data; boundary=b", form_of("job.zip", content))
    assert (answer.status, "is not a zip archive" in answer.errors) == (400, True), answer.body
    assert take_programs(root) == []


# A slash in a name makes it another path, which has no route.
@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("..", 400, "File .. does not exist"),
        (".", 400, "File . does not exist"),
        ("x" * 400 + ".py", 400, "does not exist"),
        ("%00.py", 400, "File \0.py does not exist"),
        ("%2e%2e%2fsecret.py", 404, "Not found: /jars/../secret.py"),
        ("..%2F..%2Fsecret.py", 404, "Not found: /jars/../../secret.py"),
        ("%2Fetc%2Fpasswd", 404, "Not found: /jars//etc/passwd"),
    ],
)
@pytest.mark.parametrize(
    ("method", "suffix"),
    [("DELETE", ""), ("POST", "/run"), ("POST", "/plan"), ("GET", "/plan"), ("POST", "/run-application")],
)  # fmt: skip
def test_a_name_in_a_path_leads_to_no_other_file(
    cluster: ServedCluster, root: Path, method: str, suffix: str, name: str, status: int, said: str
) -> None:
    secret = root / "secret.py"
    secret.write_text("raise SystemExit")
    answer = cluster.ask(method, f"/jars/{name}{suffix}")
    assert (answer.status, said in answer.errors) == (status, True), answer.body
    assert secret.exists()
    secret.unlink()
