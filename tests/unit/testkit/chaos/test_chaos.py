"""The chaos suite's own parts: the answer, the moments, damage and poison, the page, and that bugs can be planted."""

import inspect
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.checkpoint.handles import CheckpointMetrics
from headrace.core.barriers import SnapshotKind
from headrace.core.config import Settings
from headrace.core.lifecycle import JobStatus
from headrace.core.process import failpoints
from headrace.core.process.failpoints import FAILPOINTS, Failpoint
from headrace.gateways.checkpoints import CheckpointInfo, CheckpointOverview
from testkit.chaos import planted_bugs, report, stage
from testkit.chaos.digest_job import (
    DigestJob,
    PoisonPolicy,
    expected_dead_letters,
)
from testkit.chaos.groups import GROUPS
from testkit.chaos.planted_bugs import BUGS
from testkit.chaos.plays import DAMAGES
from testkit.chaos.report import newest_of_each_group, page_of, recovery_times
from testkit.chaos.runner import Outcome
from testkit.chaos.scenarios import EVENT_KILLS, KILLS, SMOKE, UPLOADS, USER_CODE, Scenario
from testkit.chaos.searches import SEARCHES
from testkit.chaos.stage import Stage, StalledError
from testkit.chaos.watches import RecoveryWatch


def test_the_answer_has_a_row_for_every_number_and_one_per_key_and_span_of_time() -> None:
    job = DigestJob(count=2_000, key_count=96)
    rows = job.expected_rows()
    assert len(rows) == len(set(rows))
    assert sum(row.startswith("n ") for row in rows) == 2_000
    assert sum(row.startswith("t ") for row in rows) == 96 * 4


def test_poison_is_in_no_row_of_the_answer_and_once_among_the_dead_letters() -> None:
    clean = DigestJob(count=2_000, key_count=96)
    job = DigestJob(count=2_000, key_count=96, poison_every=97, policy=PoisonPolicy.DEAD_LETTER)
    letters = expected_dead_letters(job)
    assert len(letters) == len(set(letters)) == 20
    assert letters[0] == "96: ValueError: 96 is poison"
    numbers = [row for row in job.expected_rows() if row.startswith("n ")]
    assert len(numbers) == 2_000 - 20
    assert set(clean.expected_rows()) - set(job.expected_rows())


def test_times_of_moments_are_drawn_from_the_seed_within_their_range() -> None:
    (scenario,) = (one for one in KILLS if one.name == "ack sent")
    drawn = [scenario.drawn(random.Random(seed)) for seed in range(40)]
    times = {int(text.partition("#")[2].partition("=")[0]) for (text,) in drawn}
    assert len(times) > 4
    assert times <= set(range(4, 13))
    assert scenario.drawn(random.Random(5)) == scenario.drawn(random.Random(5))


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_damage_leaves_another_file_than_there_was_or_none(damage: Any, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(range(200)))
    damage.spoil(file)
    assert not file.exists() or file.read_bytes() != bytes(range(200))


def test_everything_that_the_suite_is_asked_for_is_in_some_group() -> None:
    names = {one.name for group in GROUPS.values() for one in group.scenarios}
    names |= {name for group in GROUPS.values() for name in group.plays}
    assert names >= {one.name for one in (*KILLS, *EVENT_KILLS, *USER_CODE, *UPLOADS)}
    assert names >= {"storage is full", "storage is slow", "storage fails one write in ten"}
    assert names >= {"frozen TaskManager", "all TaskManagers at once", "state is missing"}
    assert GROUPS["kills"].count(5) == 5 * len(KILLS)


def test_each_bug_is_looked_for_in_runs_that_there_are() -> None:
    assert set(SEARCHES) == set(BUGS)
    for search in SEARCHES.values():
        names = {*search.group.plays, *(one.name for one in search.group.scenarios)}
        assert {*search.run_names} <= names


def test_every_moment_is_one_that_can_be_armed() -> None:
    try:
        for scenario in (*KILLS, *EVENT_KILLS, *USER_CODE, *UPLOADS):
            for text in scenario.drawn(random.Random(3)):
                if text.startswith("driver:"):
                    Failpoint(text.removeprefix("driver:").partition("#")[0])
                else:
                    failpoints.arm(Settings({FAILPOINTS.key: text}))
    finally:
        failpoints.disarm()
    assert len(KILLS) >= 16
    assert {scenario.name for scenario in KILLS} >= SMOKE


@pytest.mark.parametrize("name", sorted(BUGS))
def test_each_bug_can_still_be_planted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced: list[tuple[Any, str]] = []

    def note(owner: Any, attribute: str, function: Any) -> None:
        parameters = inspect.signature(getattr(owner, attribute)).parameters.values()
        named = {one.name: None for one in parameters if one.kind is one.KEYWORD_ONLY}
        positional = [None for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
        inspect.signature(function).bind(*positional, **named)
        replaced.append((owner, attribute))

    monkeypatch.setattr(planted_bugs, "_replace", note)
    BUGS[name]()
    assert len(replaced) == 1


def test_there_are_at_least_ten_bugs() -> None:
    assert len(BUGS) >= 10


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


class FakeRunner:
    """Gives the same outcome for every run."""

    def __init__(self, in_flight_bytes: int, mistakes: tuple[str, ...] = ()) -> None:
        self._rest = (mistakes, in_flight_bytes)

    def run(self, scenario: Scenario, repeat: int) -> Outcome:
        return Outcome(scenario.name, repeat, 11, 7.0, 1, (2.0,), "", *self._rest)


@pytest.mark.parametrize("name", ["events-unaligned", "events-unaligned-rocksdb"])
def test_hurried_runs_are_exact_only_where_checkpoints_held_what_was_in_flight(name: str) -> None:
    def run(runner: Any, group: str = name) -> set[tuple[str, ...]]:
        return {one.mistakes for one in GROUPS[group].runs(runner, 1)}

    assert run(FakeRunner(0)) == {("no checkpoint held anything that was in flight",)}
    assert run(FakeRunner(1)) == {()}
    assert run(FakeRunner(0, ("lost",))) == {("lost",)}
    assert run(FakeRunner(0), "kills") == {()}


def test_the_page_says_where_rows_in_flight_were_seen_and_where_nobody_looked() -> None:
    older = {**RUN, "group": "events-unaligned"}
    assert "Of 1 runs of groups `events-unaligned…`, 1 did not look" in page_of([older])
    page = page_of([{**older, "in_flight_bytes": 5}, {**older, "repeat": 1, "in_flight_bytes": 0}])
    assert "1 of the 2 that looked had" in page
    assert "did not look" not in page
    assert "in flight" not in page_of([RUN])


def test_the_most_that_a_checkpoint_held_of_what_was_in_flight_is_kept() -> None:
    watch = RecoveryWatch(lambda: ())
    watch.look_at_checkpoints(CheckpointOverview())
    assert watch.in_flight_bytes == 0
    for count in (7, 3):
        slowest = CheckpointMetrics(in_flight_bytes=count)
        info = CheckpointInfo(1, SnapshotKind.CHECKPOINT, 0, 0, 0, 0, "", slowest)
        watch.look_at_checkpoints(CheckpointOverview(latest_completed=info))
    assert watch.in_flight_bytes == 7


def test_a_recovery_ends_when_everything_ran_again_after_it_was_seen_not_to(tmp_path: Path) -> None:
    watch = RecoveryWatch(lambda: sorted(tmp_path.iterdir()))
    watch.look(False)
    watch.look(True)
    assert watch.recoveries_s == []
    (tmp_path / "first").touch()
    watch.look(True)  # the death of the process is not known yet
    assert watch.recoveries_s == []
    watch.look(False)
    (tmp_path / "second").touch()
    watch.look(True)
    assert len(watch.recoveries_s) == 1
    (tmp_path / "third").touch()
    watch.look(False)
    watch.look(True)
    assert len(watch.recoveries_s) == 2


class UncommittedJob:
    """Commits nothing, and ends after some looks at it."""

    def __init__(self, look_count: int) -> None:
        self._looks = iter([False] * look_count)

    def get_job_execution_result(self) -> "UncommittedJob":
        return self

    def done(self) -> bool:
        return next(self._looks, True)

    def result(self, timeout_s: float) -> None:
        """It ended well."""

    def get_job_details(self) -> Any:
        details = SimpleNamespace(status=JobStatus.RESTARTING, explanation="")
        return SimpleNamespace(result=lambda timeout_s: details)


@pytest.fixture
def impatient_stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Stage]:
    """For which a job stalls at once."""
    monkeypatch.setattr(stage, "STALLED_AFTER_S", 0.0)
    monkeypatch.setattr(stage, "_POLL_S", 0.0)
    yield Stage(tmp_path, 1, DigestJob(count=10, key_count=1), {}, timeout_s=60)


def test_a_job_that_runs_and_commits_nothing_has_stalled(impatient_stage: Stage) -> None:
    client: Any = UncommittedJob(1_000_000)
    with pytest.raises(StalledError, match="nothing was committed"):
        impatient_stage.finish(client)


def test_a_job_that_recovers_has_not_stalled(impatient_stage: Stage) -> None:
    impatient_stage.watch.is_recovering = True
    client: Any = UncommittedJob(100)
    impatient_stage.finish(client)
    assert client.done()
