"""The oracle itself: it must see each kind of mistake, and only that kind."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testkit.exactly_once import (
    Following,
    OutputFollower,
    Reordered,
    compare_output,
    lines_of_files,
)

RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), unique=True)


def test_each_kind_of_mistake_is_told_apart() -> None:
    verdict = compare_output(["a", "b", "c", "c"], ["a", "b", "b", "x", "c"])
    assert (verdict.lost, verdict.duplicated) == (Counter("c"), Counter("b"))
    assert verdict.corrupted == Counter("x")
    assert str(verdict) == "1 lost: 'c'; 1 duplicated: 'b'; 1 corrupted: 'x'"
    with pytest.raises(AssertionError, match="1 lost"):
        verdict.check()


def test_order_counts_by_key_and_a_repeated_record_is_no_matter_of_order() -> None:
    expected = [("a", 1), ("a", 2), ("b", 1)]
    found = [("a", 2), ("b", 1), ("a", 1), ("a", 2)]
    verdict = compare_output(
        expected, found, key_of=lambda one: one[0], position_of=lambda one: one[1]
    )
    assert verdict.reordered == (Reordered("a", ("a", 1), ("a", 2)),)
    assert verdict.duplicated == Counter([("a", 2)])
    assert compare_output(expected, found).reordered == ()


@given(RECORDS, st.randoms(use_true_random=False))
def test_whatever_is_dropped_repeated_or_spoiled_is_found(records: list[Any], chance: Any) -> None:
    found, lost, duplicated, corrupted = [], Counter[Any](), Counter[Any](), Counter[Any]()
    for record in records:
        match chance.choice(["keep", "drop", "repeat", "spoil"]):
            case "keep":
                found.append(record)
            case "drop":
                lost[record] += 1
            case "repeat":
                found += [record, record]
                duplicated[record] += 1
            case _:
                found.append((record, "spoiled"))
                corrupted[record, "spoiled"] += 1
                lost[record] += 1
    chance.shuffle(found)
    verdict = compare_output(records, found)
    assert (verdict.lost, verdict.duplicated, verdict.corrupted) == (lost, duplicated, corrupted)
    assert verdict.is_exact == (not lost and not duplicated)


@pytest.mark.parametrize(
    ("looks", "may_grow", "mistake"),
    [
        ([{"f": "a"}, {}], False, "f was committed and is gone"),
        ([{"f": "a"}, {"f": "b"}], True, "f was committed and has changed"),
        ([{"f": "a"}, {"f": "ab"}], False, "f was committed and has grown"),
        ([{"f": "a", "g": "a"}], False, "there twice: 'a'"),
        ([{"f": "aa"}, {"f": "a"}], True, "there twice: 'a'; f was committed and has changed"),
    ],
)
def test_a_follower_sees_what_must_not_happen_in_between(
    looks: list[dict[str, str]], may_grow: bool, mistake: str
) -> None:
    coming = iter(looks)
    follower = OutputFollower(lambda: next(coming), may_grow=may_grow)
    for _ in looks:
        follower.poll()
    with pytest.raises(AssertionError) as caught:
        follower.check()
    assert str(caught.value) == mistake


def test_a_follower_bears_what_grows_at_its_end() -> None:
    looks = iter([{"p": "a"}, {"p": "ab", "q": "c"}])
    follower = OutputFollower(lambda: next(looks), may_grow=True)
    follower.poll()
    follower.poll()
    follower.check()
    assert follower.records == ["a", "b", "c"]


def test_a_job_is_followed_while_it_runs_and_once_more_when_it_has_ended() -> None:
    second_look, is_committed = threading.Event(), threading.Event()

    def read() -> dict[str, str]:
        if follower.poll_count == 1:
            second_look.set()
        return {"f": "ab"} if is_committed.is_set() else {"f": "a"}

    follower = OutputFollower(read)
    with (
        pytest.raises(AssertionError, match="has grown"),
        Following(follower, interval_s=0.001),
    ):
        assert second_look.wait(10)
        is_committed.set()


def test_hidden_files_are_no_output(tmp_path: Path) -> None:
    (tmp_path / ".staging").mkdir()
    for name in ("part-0", "_SUCCESS", ".staging/part-1"):
        (tmp_path / name).write_text("a\nb\n")
    assert lines_of_files(tmp_path) == {str(tmp_path / "part-0"): ["a", "b"]}
