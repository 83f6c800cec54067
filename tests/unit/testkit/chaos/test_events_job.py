"""The events job of the chaos suite: its answer, and that a run without any chaos gives it."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import StreamExecutionEnvironment
from headrace.common import Configuration
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.chaos import planted_bugs
from testkit.chaos.events_answer import SessionModel
from testkit.chaos.events_job import EventsJob
from testkit.chaos.jobs import OUTPUT
from testkit.chaos.records import (
    LATENESS_MS,
    SESSION_GAP_MS,
    RecordKind,
    rule_content,
    rule_of,
)
from testkit.exactly_once import Verdict, compare_output, lines_of_files

JOB = EventsJob(count=3_000)
EVENTS = RecordKind.EVENTS


def rows_of(kind: str, job: EventsJob = JOB) -> list[list[str]]:
    return [row.split(" ") for row in job.expected_rows() if row.startswith(f"{kind} ")]


def test_the_answer_has_each_row_once_and_every_kind_of_row() -> None:
    rows = JOB.expected_rows()
    assert len(rows) == len({*rows})
    assert {row[0] for row in rows} == {"s", "l", "j", "r"}


def test_every_event_has_one_row_with_the_rule_of_its_time_and_the_first_one() -> None:
    rows = rows_of("r")
    assert sorted(int(event) for _, _, event, _ in rows) == [*range(JOB.count)]
    newest, first = zip(*(contents.split("/") for *_, contents in rows), strict=True)
    assert {*first} == {str(rule_content(0))}
    assert {*newest} == {str(rule_content(rule_of(EVENTS.time_ms(n)))) for n in range(JOB.count)}
    rules = RecordKind.RULES
    for number in range(0, JOB.count, 37):
        rule, time_ms = rule_of(EVENTS.time_ms(number)), EVENTS.time_ms(number)
        assert rules.time_ms(rule) <= time_ms < rules.time_ms(rule + 1)
        assert 0 <= rule < rules.count(JOB.count)


def test_of_events_that_are_behind_some_come_too_late_and_some_fire_their_session_again() -> None:
    late = [int(row[2]) for row in rows_of("l")]
    behind = [one for one in range(JOB.count) if EVENTS.is_behind(one)]
    assert 0 < len(late) < len(behind)
    assert {*late} < {*behind}
    firings = Counter((key, start) for _, key, start, *_ in rows_of("s"))
    assert max(firings.values()) > 1


def test_what_is_on_time_never_comes_behind_its_watermark() -> None:
    for kind in (EVENTS, RecordKind.ORDERS, RecordKind.RULES):
        watermark = -1
        for number in range(kind.count(JOB.count)):
            if not kind.is_behind(number):
                assert kind.time_ms(number) > watermark
            said = kind.watermark_behind(number)
            assert said is None or said > watermark
            watermark = watermark if said is None else said


@given(st.permutations(range(60)), st.integers(1, 60))
def test_until_event_time_moves_the_order_of_events_is_no_matter_to_the_model(
    events: list[int], key_count: int
) -> None:
    def rows(order: list[int]) -> list[str]:
        model = SessionModel(key_count)
        assert [row for event in order for row in model.take(event)] == []
        return sorted(model.advance(2**62))

    assert rows(events) == rows(sorted(events))


def test_the_model_fires_again_within_lateness_and_refuses_behind_it() -> None:
    model, event = SessionModel(1), 0
    time_ms = EVENTS.time_ms(event)
    assert [*model.take(event)] == []
    end_ms = time_ms + SESSION_GAP_MS
    assert [*model.advance(end_ms - 2)] == []
    assert [row.split(" ")[4] for row in model.advance(end_ms - 1)] == ["1"]
    assert [*model.advance(end_ms)] == []
    # The same event once more stands for another of that time.
    assert [row.split(" ")[4] for row in model.take(event)] == ["2"]
    assert [*model.advance(end_ms - 1 + LATENESS_MS)] == []
    assert [*model.take(event)] == [f"l 0 {event}"]


def verdict_of_a_run(tmp_path: Path) -> Verdict:
    job = EventsJob(count=1_500, rows_per_second=1_000_000)
    checkpoints = {
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
    }
    with MiniClusterExecutor(slot_count=2, settings=checkpoints):
        configuration = Configuration.from_dict(checkpoints)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        job.build(env, tmp_path)
        env.execute("events")
    found = [row for rows in lines_of_files(tmp_path / OUTPUT).values() for row in rows]
    return compare_output(job.expected_rows(), found)


def test_a_run_without_chaos_gives_the_answer(tmp_path: Path) -> None:
    verdict = verdict_of_a_run(tmp_path)
    assert verdict.is_exact, str(verdict)


@pytest.mark.parametrize("bug", ["merge-too-little", "forget-late-records"])
def test_a_bug_that_needs_no_restart_is_found_in_a_run(
    bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planted_bugs, "_replace", monkeypatch.setattr)
    planted_bugs.BUGS[bug]()
    verdict = verdict_of_a_run(tmp_path)
    assert verdict.lost and not verdict.duplicated


def test_rows_of_timers_have_a_place_unless_their_event_was_behind() -> None:
    behind = next(one for one in range(JOB.count) if EVENTS.is_behind(one))
    assert JOB.place_of(f"r 5 {behind} 1") is None
    assert JOB.place_of("r 5 0 1") == ("5", EVENTS.time_ms(0))
    assert JOB.place_of("j 5 0 1") is None
