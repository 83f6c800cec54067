"""Answers with log files: their end, or the part that a request names; and a log that a real server lets follow."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from fastapi import Response

from headrace.cli.jobs.logs import LogFollower, follow_log
from headrace.core.process.log_files import LogPiece, read_log_file
from headrace.core.process.rotating_file import RotatingFile
from headrace.rest.client import RestClient
from headrace.rest.handlers.log_answers import log_answer
from tests.unit.rest.sample_cluster import LOG_NAME, TASK_MANAGER
from tests.unit.rest.served_cluster import ServedCluster, served_cluster

CONTENT = b"0123456789"
PATH = "/jobmanager/log"
TASK_MANAGER_LOG = f"/taskmanagers/{TASK_MANAGER}/log"


def answer_of(
    range_header: str | None, content: bytes = CONTENT, *, bound: int | None = None
) -> Response:
    async def read(offset: int, max_bytes: int) -> LogPiece:
        # A piece may be shorter than what was asked for.
        return LogPiece(offset, len(content), content[offset : offset + min(max_bytes, 3)])

    return asyncio.run(log_answer("a.log", read, range_header, bound))


@pytest.mark.parametrize(
    "header",
    [None, "", "bytes=-", "bytes=5-3", "bytes=0-1,4-5", "lines=1-2", f"bytes={'9' * 5000}-", "5-"],
)
def test_without_a_single_range_of_bytes_the_whole_file_is_answered(header: str | None) -> None:
    answer = answer_of(header)
    assert (answer.status_code, answer.body) == (200, CONTENT)
    assert answer.headers["accept-ranges"] == "bytes"
    assert "content-range" not in answer.headers


@pytest.mark.parametrize(
    ("header", "content", "place"),
    [
        ("bytes=0-", CONTENT, "0-9"),
        ("bytes=7-", b"789", "7-9"),
        ("bytes=-4", b"6789", "6-9"),
        ("bytes=-524288", CONTENT, "0-9"),
        ("bytes=2-3", b"23", "2-3"),
        ("Bytes=8-99", b"89", "8-9"),
    ],
)
def test_the_part_that_a_range_names_is_answered_with_its_place(
    header: str, content: bytes, place: str
) -> None:
    answer = answer_of(header)
    assert (answer.status_code, answer.body) == (206, content)
    assert answer.headers["content-range"] == f"bytes {place}/10"


@pytest.mark.parametrize(
    ("header", "content"),
    [("bytes=10-", CONTENT), ("bytes=99-", CONTENT), ("bytes=-0", CONTENT), ("bytes=0-", b"")],
)
def test_a_range_in_which_there_is_nothing_is_told_with_the_size_of_the_file(
    header: str, content: bytes
) -> None:
    answer = answer_of(header, content)
    assert answer.status_code == 416
    assert answer.headers["content-range"] == f"bytes */{len(content)}"
    assert f"the file has {len(content)} bytes" in json.loads(bytes(answer.body))["errors"][0]


def test_the_end_of_an_empty_file_is_the_file_and_no_error() -> None:
    answer = answer_of("bytes=-5", b"")
    assert (answer.status_code, answer.body) == (200, b"")


@pytest.mark.parametrize(
    ("header", "status", "content"),
    [
        (None, 200, b"6789"),
        ("bytes=0-", 206, b"0123"),
        ("bytes=3-8", 206, b"3456"),
        ("bytes=-9", 206, b"6789"),
    ],
)
def test_no_answer_is_longer_than_its_bound(
    header: str | None, status: int, content: bytes
) -> None:
    answer = answer_of(header, bound=4)
    assert (answer.status_code, answer.body) == (status, content)


def test_a_file_that_becomes_shorter_meanwhile_is_answered_as_far_as_it_goes() -> None:
    async def read(offset: int, max_bytes: int) -> LogPiece:
        size = 10 if max_bytes == 0 else 5
        return LogPiece(offset, size, CONTENT[offset : min(size, offset + max_bytes)])

    answer = asyncio.run(log_answer("a.log", read, "bytes=2-"))
    assert (answer.status_code, answer.body) == (206, b"234")
    assert answer.headers["content-range"] == "bytes 2-4/10"
    assert asyncio.run(log_answer("a.log", read, "bytes=7-")).status_code == 416


class Enough(Exception):
    """Somebody pressed Ctrl-C."""


def followed(
    cluster: ServedCluster,
    path: str,
    changes: Sequence[Callable[[], object]],
    note: Callable[[str], None] = pytest.fail,
) -> bytes:
    """Return all that is written of a log which is changed between the questions for it."""
    written: list[bytes] = []
    remaining = iter(changes)

    def wait(seconds: float) -> None:
        change = next(remaining, None)
        if change is None:
            raise Enough
        change()

    client = RestClient(cluster.server.address, cluster.token)
    with pytest.raises(Enough):
        follow_log(LogFollower(client, path, 0, written.append, note), wait, is_endless=True)
    return b"".join(written)


def add(file: Path, content: bytes) -> None:
    with file.open("ab") as opened:
        opened.write(content)


def test_a_followed_log_is_read_once_and_then_only_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "jobmanager.log"
    log.write_bytes(CONTENT)
    reads: list[tuple[int, bytes]] = []

    def noted(folder: Path, name: str, offset: int, max_bytes: int) -> LogPiece:
        piece = read_log_file(folder, name, offset, max_bytes)
        if piece.content:
            reads.append((piece.offset, piece.content))
        return piece

    monkeypatch.setattr("headrace.rest.handlers.cluster.read_log_file", noted)
    with served_cluster(tmp_path / "home", monkeypatch, log_folder=tmp_path) as cluster:
        changes = [lambda: add(log, b"ab"), lambda: None, lambda: add(log, b"c")]
        assert followed(cluster, PATH, changes) == CONTENT + b"abc"
    assert reads == [(0, CONTENT), (10, b"ab"), (12, b"c")]


def test_a_log_beyond_the_bound_of_an_answer_is_printed_whole_and_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.rest.handlers.log_answers.ANSWER_SIZE_MAX_BYTES", 4)
    log = tmp_path / "jobmanager.log"
    log.write_bytes(CONTENT)
    with served_cluster(tmp_path / "home", monkeypatch, log_folder=tmp_path) as cluster:
        assert cluster.get(PATH).body == b"6789"
        changes = [lambda: add(log, b"abcdef"), lambda: add(log, b"g")]
        assert followed(cluster, PATH, changes) == CONTENT + b"abcdefg"


def test_a_log_that_is_begun_anew_is_followed_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "jobmanager.log"
    log.write_bytes(CONTENT)
    with served_cluster(tmp_path / "home", monkeypatch, log_folder=tmp_path) as cluster:
        changes = [lambda: log.write_bytes(b"new"), lambda: add(log, b"er")]
        assert followed(cluster, PATH, changes) == CONTENT + b"newer"


@pytest.mark.parametrize("path", [PATH, "/jobmanager/logs/jobmanager.log"])
def test_no_line_is_lost_where_a_followed_log_is_put_aside_several_times_between_two_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    log = RotatingFile(tmp_path / "jobmanager.log", 30, 9)
    lines = [b"line %06d\n" % number for number in range(20)]

    def write(begin: int, end: int) -> Callable[[], object]:
        return lambda: [log.write(line) for line in lines[begin:end]]

    write(0, 1)()
    with served_cluster(tmp_path / "home", monkeypatch, log_folder=tmp_path) as cluster:
        changes = [write(1, 12), write(12, 13), write(13, 20)]
        assert followed(cluster, path, changes) == b"".join(lines)
    log.close()


def test_lines_of_a_followed_log_that_were_deleted_meanwhile_are_told_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, notes = RotatingFile(tmp_path / "jobmanager.log", 10, 1), list[str]()
    log.write(b"first 123\n")
    with (
        served_cluster(tmp_path / "home", monkeypatch, log_folder=tmp_path) as cluster,
        # Held open, so that no new file gets the id of the deleted one.
        (tmp_path / "jobmanager.log").open(),
    ):
        changes = [lambda: [log.write(b"line %04d\n" % number) for number in range(5)]]
        found = followed(cluster, PATH, changes, notes.append)
    log.close()
    assert found == b"first 123\nline 0004\n"
    assert notes == [
        "lines are missing here: the log was rotated more often than old files are kept"
    ]


def test_an_answer_is_of_one_file_where_that_is_put_aside_while_it_is_read() -> None:
    ids = iter(["old", "old", "new", "new"])

    async def read(offset: int, max_bytes: int) -> LogPiece:
        return LogPiece(offset, 10, CONTENT[offset : offset + min(max_bytes, 3)], next(ids))

    answer = asyncio.run(log_answer("a b.log", read, "bytes=0-"))
    assert (answer.status_code, answer.body) == (206, b"012")
    assert (answer.headers["log-file-id"], answer.headers["log-file-name"]) == ("old", "a%20b.log")


def test_parts_of_a_task_managers_log_are_answered_likewise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_cluster(tmp_path, monkeypatch) as cluster:
        named = f"/taskmanagers/{TASK_MANAGER}/logs/{LOG_NAME}"
        headers = {"Authorization": f"Bearer {cluster.token}", "Range": "bytes=-524288"}
        for path in (TASK_MANAGER_LOG, named):
            answer = cluster.ask("GET", path, headers=headers)
            assert (answer.status, answer.body) == (206, b"line\n" * 3)
            assert answer.headers["content-range"] == "bytes 0-14/15"
        manager = cluster.resource_manager

        def grow() -> None:
            manager.log += b"more\n"

        assert followed(cluster, TASK_MANAGER_LOG, [grow]) == b"line\n" * 3 + b"more\n"
