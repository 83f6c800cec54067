"""`headrace logs`: which file, how much of it, and how it is followed while it grows and is begun anew."""

import json
from collections.abc import Sequence

import pytest

from headrace.cli.jobs.logs import LogFollower, follow_log
from headrace.rest.client import RestClient
from tests.unit.cli.shell import Shell
from tests.unit.rest.fake_cluster import Answer, fake_cluster

LOG = b"one\ntwo\nthree\nfour"


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ([], "/jobmanager/log"),
        (["--stdout"], "/jobmanager/stdout"),
        (["--file", "a b.log"], "/jobmanager/logs/a%20b.log"),
        (["1"], "/taskmanagers/host%3A1-aa/log"),
        (["1", "-o"], "/taskmanagers/host%3A1-aa/stdout"),
    ],
)
def test_a_log_is_printed_as_it_is(shell: Shell, arguments: list[str], path: str) -> None:
    managers = {"taskmanagers": [{"id": "host:1-aa"}]}
    answers = {"GET /taskmanagers": managers, f"GET {path}": Answer(200, LOG)}
    with fake_cluster(answers, token="") as cluster:
        assert shell("logs", *arguments, "-m", cluster.authority).out == LOG.decode()


def test_a_task_manager_that_has_ended_is_named_by_its_whole_id(shell: Shell) -> None:
    answers = {
        "GET /taskmanagers": {"taskmanagers": [{"id": "host:1-aa"}]},
        "GET /taskmanagers/host%3A1-bb/logs": {"logs": []},
        "GET /taskmanagers/host%3A1-bb/log": Answer(200, LOG),
    }
    with fake_cluster(answers, token="") as cluster:
        assert shell("logs", "host:1-bb", "-m", cluster.authority).out == LOG.decode()
        unknown = shell("logs", "bb", "-m", cluster.authority)
    assert "no TaskManager has 'bb' in the id" in unknown.err


@pytest.mark.parametrize(
    ("count", "expected"), [("2", "three\nfour"), ("0", ""), ("9", LOG.decode())]
)
def test_the_last_lines_are_printed(shell: Shell, count: str, expected: str) -> None:
    with fake_cluster({"GET /jobmanager/log": Answer(200, LOG)}, token="") as cluster:
        assert shell("logs", "-n", count, "-m", cluster.authority).out == expected


def test_the_last_lines_are_looked_for_in_the_end_of_a_long_log(shell: Shell) -> None:
    end = Answer(206, b"three\nfour\n", {"Content-Range": "bytes 8-18/19"})
    with fake_cluster({"GET /jobmanager/log": end}, token="") as cluster:
        assert shell("logs", "-n", "1", "-m", cluster.authority).out == "four\n"
    assert [one.headers["range"] for one in cluster.requests] == [f"bytes=-{64 << 20}"]


def test_files_are_listed_with_their_sizes(shell: Shell) -> None:
    files = {"logs": [{"name": "headrace.log", "size": 2048, "mtime": 1}]}
    with fake_cluster({"GET /jobmanager/logs": files}, token="") as cluster:
        outcome = shell("logs", "--list", "-m", cluster.authority)
        as_json = shell("logs", "--list", "--json", "-m", cluster.authority)
    assert outcome.out.split() == ["2.0", "KB", "headrace.log"]
    assert json.loads(as_json.out) == files


def test_a_log_as_json_is_one_document(shell: Shell) -> None:
    with fake_cluster({"GET /jobmanager/log": Answer(200, b"a\xff\nb")}, token="") as cluster:
        outcome = shell("logs", "--json", "-n", "1", "-m", cluster.authority)
    assert json.loads(outcome.out) == {"text": "b"}


def test_a_log_that_is_not_there_is_told(shell: Shell) -> None:
    missing = Answer(404, {"errors": ["This file does not exist in JobManager log dir."]})
    answers = {"GET /jobmanager/log": missing, "GET /jobmanager/logs": {"logs": []}}
    with fake_cluster(answers, token="") as cluster:
        outcome = shell("logs", "-m", cluster.authority)
    assert outcome.code == 1
    hint, error = outcome.err.splitlines()
    assert hint.startswith("--list shows the existing files")
    assert error.startswith("error: This file does not exist in JobManager log dir.")


@pytest.mark.parametrize(
    "options", [["--list", "-o"], ["-f", "--json"], ["-f", "-l"], ["--file", "x", "--stdout"]]
)
def test_options_that_exclude_each_other_are_refused(shell: Shell, options: list[str]) -> None:
    assert shell("logs", *options, "-m", "127.0.0.1:1").code == 1


class Enough(Exception):
    """Somebody pressed Ctrl-C."""


def followed(states: Sequence[bytes], offset: int) -> bytes:
    """All that is written while a log has these contents, one after the other."""
    answers = {"GET /jobmanager/log": tuple(Answer(200, state) for state in states)}
    written: list[bytes] = []
    pauses = 0

    def wait(seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == len(states):
            raise Enough

    with fake_cluster(answers, token="") as cluster, pytest.raises(Enough):
        client = RestClient(cluster.address)
        follower = LogFollower(client, "/jobmanager/log", offset, written.append, pytest.fail)
        follow_log(follower, wait, is_endless=True)
    return b"".join(written)


def test_what_is_added_to_a_log_is_written_once() -> None:
    assert followed([b"ab", b"ab", b"abcd", b"abcde"], 0) == b"abcde"
    assert followed([b"ab", b"abcd"], 2) == b"cd"


def test_a_log_that_is_begun_anew_is_written_from_its_start() -> None:
    assert followed([b"abcdef", b"xy", b"xyz"], 0) == b"abcdefxyz"


def test_a_terminal_is_shown_control_characters_as_escapes_and_a_pipe_the_file_as_it_is(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"\x1b]0;owned\x07line\n\ttab \xc3\xa4\n"
    with fake_cluster({"GET /jobmanager/log": Answer(200, content)}, token="") as cluster:
        assert shell("logs", "-m", cluster.authority).out == content.decode()
        monkeypatch.setattr("headrace.cli.jobs.logs.is_terminal", lambda: True)
        shown = shell("logs", "-m", cluster.authority).out
    assert shown == "\\x1b]0;owned\\x07line\n\ttab \u00e4\n"
