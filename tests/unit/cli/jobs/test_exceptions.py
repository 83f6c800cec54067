"""`headrace exceptions`: the line of the program first, then the error, and where it happened."""

import json
from typing import Any

import pytest

from headrace.cli.jobs.exceptions import message_of, place_of
from tests.unit.cli.jobs.answers import ONE_RUNNING, STARTED
from tests.unit.cli.shell import Shell
from tests.unit.rest.fake_cluster import JOB, fake_cluster

TRACEBACK = """\
ValueError: no such airport (in operator 'Map', /jobs/departures.py, line 12)

Traceback (most recent call last):
  File "/usr/lib/site-packages/headrace/operators/x.py", line 3, in f
  File "/jobs/departures.py", line 12, in delay
    raise ValueError("no such airport")
ValueError: no such airport
"""


def entry(stacktrace: str = TRACEBACK, **others: Any) -> dict[str, Any]:
    return {
        "exceptionName": "headrace.core.errors.UserCodeError",
        "stacktrace": stacktrace,
        "timestamp": STARTED,
        "taskName": "Map (2/4) - execution #1",
        "endpoint": "host:4711",
        "concurrentExceptions": [],
        **others,
    }


def history(*entries: dict[str, Any], truncated: bool = False) -> dict[str, Any]:
    told = {"exceptionHistory": {"entries": list(entries), "truncated": truncated}}
    return {**ONE_RUNNING, f"GET /jobs/{JOB}/exceptions": told}


def test_the_user_s_file_and_line_come_first(shell: Shell) -> None:
    with fake_cluster(history(entry()), token="") as cluster:
        outcome = shell("exceptions", "-m", cluster.authority, "-n", "3")
    assert outcome.lines == [
        "/jobs/departures.py, line 12: ValueError: no such airport (in operator 'Map')",
        "  18.11.2026 11:06:40 in Map (2/4) - execution #1 on host:4711",
    ]
    assert cluster.requests[-1].query == {"maxExceptions": ["3"]}


def test_others_that_failed_with_it_are_counted_and_told_apart(shell: Shell) -> None:
    others = [entry(), entry("ConnectionError: gone"), entry("ConnectionError: gone")]
    with fake_cluster(history(entry(concurrentExceptions=others)), token="") as cluster:
        outcome = shell("exceptions", "-m", cluster.authority, JOB)
    assert outcome.lines[2:] == ["  3 more failed with it", "    ConnectionError: gone"]


def test_tracebacks_are_shown_on_demand_and_older_ones_are_mentioned(shell: Shell) -> None:
    with fake_cluster(history(entry(), truncated=True), token="") as cluster:
        outcome = shell("exceptions", "--traceback", "-n", "1", "-m", cluster.authority, JOB)
    assert "  Traceback (most recent call last):" in outcome.lines
    assert "There are older ones: -n 2 shows more, if the cluster keeps them." in outcome.lines


def test_no_exception_is_said_in_words_and_is_an_empty_list_for_programs(shell: Shell) -> None:
    with fake_cluster(history(), token="") as cluster:
        outcome = shell("exceptions", "-m", cluster.authority, JOB)
        as_json = shell("exceptions", "--json", "-m", cluster.authority, JOB)
    assert outcome.out == "No exceptions.\n"
    assert json.loads(as_json.out) == {"job-id": JOB, "exceptions": [], "truncated": False}


def test_json_has_the_place_and_all_that_the_cluster_said(shell: Shell) -> None:
    with fake_cluster(history(entry()), token="") as cluster:
        outcome = shell("exceptions", "--json", "-m", cluster.authority, JOB)
    (told,) = json.loads(outcome.out)["exceptions"]
    assert told == {"place": "/jobs/departures.py, line 12", **entry()}


@pytest.mark.parametrize(
    ("stacktrace", "place"),
    [
        ("", ""),
        ("KeyError: 1 (in operator 'a, b', job.py, line 9)", "job.py, line 9"),
        ('File "a.py", line 1, in f\nFile "b.py", line 2, in g', "b.py, line 2"),
        ('File "/x/site-packages/pandas/a.py", line 1, in f', ""),
        ("HeartbeatTimeout: gone", ""),
    ],
)
def test_the_place_is_the_innermost_of_the_user_s_files(stacktrace: str, place: str) -> None:
    assert place_of(stacktrace) == place


@pytest.mark.parametrize(
    ("name", "stacktrace", "said"),
    [
        ("a.b.LostError", "the worker is gone\nmore", "LostError: the worker is gone"),
        ("a.b.LostError", "a.b.LostError: gone", "a.b.LostError: gone"),
        ("LostError", "", "LostError"),
        ("", "", "unknown error"),
        ("LostError", "Traceback (most recent call last):\n...", "LostError"),
    ],
)
def test_an_exception_is_told_in_a_line(name: str, stacktrace: str, said: str) -> None:
    assert message_of({"exceptionName": name, "stacktrace": stacktrace}) == said
