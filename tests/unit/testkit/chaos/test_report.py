"""The page of the chaos suite: which runs count, and what it says of them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from testkit.chaos import report
from testkit.chaos.report import newest_of_each_group, page_of, recovery_times
from tests.integration.high_availability.outcomes import Outcome

RUN: dict[str, Any] = {
    "group": "kills",
    "scenario": "ack sent",
    "repeat": 0,
    "seed": 11,
    "duration_s": 7.0,
    "disturbance_count": 1,
    "recoveries_s": [2.0],
    "note": "checkpoint.acknowledged#5=kill",
    "mistakes": [],
}


def test_the_page_says_which_runs_were_exact_and_which_bugs_were_found() -> None:
    page = page_of(
        [
            RUN,
            {**RUN, "repeat": 1, "mistakes": ["oracle: 1 lost\nTraceback"], "recoveries_s": [4.0]},
            {"bug": "x", "found_by": ""},
        ]
    )
    assert "1 of 2 runs were exact" in page
    assert "| kills | ack sent | 2 | 1 | 2 | 3.0 | 4.0 |" in page
    assert "| x |  | **not found** |" in page
    assert "| kills: ack sent #0 | 11 | 7.0 | 2.0 | checkpoint.acknowledged#5=kill |" in page
    assert "**oracle: 1 lost**" in page


def test_the_page_counts_disturbances_under_the_name_of_older_files_too() -> None:
    older = {**RUN, "repeat": 1, "kill_count": 2}
    del older["disturbance_count"]
    page = page_of([RUN, older])
    assert "under 3 disturbances" in page
    assert "| kills | ack sent | 2 | 2 | 3 |" in page


def test_kills_of_leaders_are_runs_of_the_page_though_no_seed_repeats_them() -> None:
    late = Outcome("leader: the job is stored", 12.5).judged()
    early = Outcome("leader: the job is stored", 8.0)
    page = page_of([RUN, early.line("leaders", 0, 20.0, 2.4), late.line("leaders", 1, 25.0, 3.0)])
    assert "2 of 3 runs were exact" in page
    assert "| leaders | leader: the job is stored | 2 | 1 | 2 | 10.2 | 12.5 |" in page
    assert (
        "| leaders: leader: the job is stored #0 |  | 20.0 | 8.0 | load average 2.4 before |"
        in page
    )
    assert "it took 12.5 s, and 12 s are the bound" in page


def test_a_group_that_is_run_again_takes_the_place_of_its_earlier_run() -> None:
    head = {"seed": 7, "at": "2026-01-01 10:00", "processors": 2, "load_average": 0.5}
    lines = [
        {"begun": "kills", **head},
        {**RUN, "seed": 1},
        {"begun": "storage", **head},
        {**RUN, "group": "storage", "seed": 2},
        {"begun": "kills", **head},
        {**RUN, "seed": 3},
        {"begun": "bugs", **head},
        {"bug": "x", "found_by": "oracle"},
    ]
    kept = newest_of_each_group(lines)
    assert [line["seed"] for line in kept if "scenario" in line] == [2, 3]
    assert [line["bug"] for line in kept if "bug" in line] == ["x"]


def test_a_run_that_is_done_again_by_itself_counts_in_place_of_the_first() -> None:
    first, second = {**RUN, "duration_s": 8.0}, {**RUN, "repeat": 1}
    bugs = [{"bug": "x", "found_by": ""}, {"bug": "x", "found_by": "oracle"}]
    assert newest_of_each_group([first, second, RUN, *bugs]) == [RUN, second, bugs[1]]


def test_a_run_that_was_not_exact_stays_and_is_named_however_often_it_is_repeated() -> None:
    failed = {**RUN, "mistakes": ["StalledError: nothing\nTraceback"], "recoveries_s": [27.6]}
    worse = {**RUN, "mistakes": ["oracle: 1 lost"], "recoveries_s": []}
    lines = [failed, worse, RUN, {**RUN, "duration_s": 8.0}]
    kept = newest_of_each_group(lines)
    assert kept == [failed, worse, lines[3]]
    assert newest_of_each_group(kept) == kept
    page = page_of(kept)
    assert "1 of 3 runs were exact" in page
    name = "- **kills: ack sent #0** (seed 11, recovery"
    assert f"{name} 27.6 s): StalledError: nothing. It was repeated" in page
    assert "with the same seed: 1 of 2 repetitions exact." in page
    assert f"{name} not seen): oracle: 1 lost. It was repeated" in page
    assert "It was not repeated." in page_of([worse])
    assert "It was not repeated. Why.\n" in page_of([{**worse, "remark": "Why."}])
    assert "Not exact" not in page_of([RUN])


def test_the_file_keeps_what_counts_and_the_page_can_be_made_of_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, page = tmp_path / "chaos.jsonl", tmp_path / "page.md"
    begun = {"seed": 7, "at": "2026-01-01", "processors": 2}
    lines = [
        {"begun": "kills", **begun},
        {**RUN, "seed": 1, "recoveries_s": []},
        {"begun": "kills", **begun, "at": "2026-01-02 10:00", "load_average": 2.5},
        {**RUN, "seed": 2, "recoveries_s": []},
        {"begun": "damage", **begun, "load_averages": [1.5, 9.0]},
        {**RUN, "group": "damage", "seed": 3, "recoveries_s": []},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(sys, "argv", ["report", str(file), str(page)])
    pages: list[str] = []
    for _ in range(2):
        assert report.main() == 0
        pages.append(page.read_text())
        assert [json.loads(line) for line in file.read_text().splitlines()] == lines[2:]
    assert pages[0] == pages[1]
    assert "from 2026-01-01 to 2026-01-02 10:00 UTC" in pages[0]
    assert "load average at the begin of a part 1.5 to 9.0" in pages[0]


def test_recovery_times_are_kept_apart_by_moment_and_kind_of_group() -> None:
    times = recovery_times([RUN, {**RUN, "group": "kills-rocksdb", "recoveries_s": [3.0, 5.0]}])
    assert times == {"ack sent": [2.0], "ack sent, rocksdb": [3.0, 5.0]}
    of_events = recovery_times([RUN, {**RUN, "group": "events"}, {**RUN, "group": "events-x"}])
    assert [*of_events] == ["ack sent", "ack sent, events", "ack sent, events-x"]


def test_the_page_says_where_rows_in_flight_were_seen_and_where_nobody_looked() -> None:
    older = {**RUN, "group": "events-unaligned"}
    assert "Of 1 runs of groups `events-unaligned…`, 1 did not look" in page_of([older])
    page = page_of([{**older, "in_flight_bytes": 5}, {**older, "repeat": 1, "in_flight_bytes": 0}])
    assert "1 of the 2 that looked had" in page
    assert "did not look" not in page
    assert "in flight" not in page_of([RUN])
