"""The chaos suite's own parts: the answer, the table of moments, the page, and that bugs can still be planted."""

from typing import Any

import pytest

from headrace.core import failpoints
from headrace.core.config import Settings
from headrace.core.failpoints import FAILPOINTS, Failpoint
from headrace.testing.chaos import planted_bugs
from headrace.testing.chaos.digest_job import DigestJob, expected_rows
from headrace.testing.chaos.planted_bugs import BUGS
from headrace.testing.chaos.report import page_of
from headrace.testing.chaos.scenarios import KILLS, SMOKE, STORAGE, USER_CODE


def test_the_answer_has_a_row_for_every_number_and_one_per_key_and_span_of_time() -> None:
    job = DigestJob(count=2_000, key_count=96)
    rows = expected_rows(job)
    assert len(rows) == len(set(rows))
    assert sum(row.startswith("n ") for row in rows) == 2_000
    assert sum(row.startswith("t ") for row in rows) == 96 * 4


def test_every_moment_is_one_that_can_be_armed() -> None:
    try:
        for scenario in (*KILLS, *USER_CODE, *STORAGE):
            for text in scenario.failpoints:
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
        assert hasattr(owner, attribute)
        replaced.append((owner, attribute))

    monkeypatch.setattr(planted_bugs, "_replace", note)
    BUGS[name]()
    assert len(replaced) == 1


def test_there_are_at_least_ten_bugs() -> None:
    assert len(BUGS) >= 10


def test_the_page_says_which_runs_were_exact_and_which_bugs_were_found() -> None:
    run = {
        "group": "kills",
        "scenario": "ack sent",
        "repeat": 0,
        "duration_s": 7.0,
        "kill_count": 1,
        "recovery_s": 2.0,
        "mistakes": [],
    }
    page = page_of(
        [run, {**run, "mistakes": ["1 lost"], "recovery_s": 4.0}, {"bug": "x", "found_by": ""}]
    )
    assert "1 of 2 runs were exact" in page
    assert "| kills | ack sent | 2 | 1 | 2 | 3.0 | 4.0 |" in page
    assert "| x | **not found** |" in page
