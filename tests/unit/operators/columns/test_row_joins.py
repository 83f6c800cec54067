"""Joins by whole batches: against plain Python, however cut, restored and rescaled; equal hashes are no equal keys."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import UserCodeError
from headrace.core.key_hash import hash_keys
from headrace.core.types.rows import Row
from headrace.core.types.type_info import Types
from headrace.functions.specs.columnar_specs import EventTimeWindows, RowJoinSpec, WindowRowJoinSpec
from headrace.operators.columns import row_join
from headrace.testing.operator_harness import HarnessStep, OperatorHarness, Rows, WatermarkAt
from headrace.testing.operator_ways import run_all_cuts, run_all_ways
from tests.unit.operators.columns.row_join_harness import SIZE, left, plain_join, right, window_join

# Texts with one hash, as in Java.
ONE, OTHER = "Aa", "BB"


def pairs(harness: OperatorHarness) -> list[tuple[int, int]]:
    for row in harness.output.rows:
        assert row["a"] == row["b"]
    return [(row["left"], row["right"]) for row in harness.output.rows]


def test_each_row_meets_those_that_came_before_in_their_order() -> None:
    assert len(set(hash_keys([ONE, OTHER]).tolist())) == 1
    steps: list[HarnessStep] = [
        left((ONE, 1), ("x", 2), times=[5, 6]),
        right(("x", 10), (ONE, 11), (OTHER, 12), ("x", 13), times=[9, 1, 1, 2]),
        left((OTHER, 3), ("x", 4), ("y", 5), times=[0, 0, 0]),
        WatermarkAt(3),
        right(("y", 14), (ONE, 15), times=[7, 1]),
    ]
    harness = run_all_ways(plain_join, steps)
    assert pairs(harness) == [
        (2, 10), (1, 11), (2, 13), (3, 12), (4, 10), (4, 13), (5, 14), (1, 15)
    ]  # fmt: skip
    assert [time for _, time in harness.output.timed_rows] == [9, 5, 6, 1, 9, 2, 7, 5]


def test_nothing_is_kept_for_a_stream_that_has_ended() -> None:
    harness = plain_join()
    harness.perform(left(("x", 1), ("y", 2)))
    harness.perform(right(("x", 10)))
    assert sum(chunk.row_count for chunk in harness.snapshot().chunks) == 3
    harness.operator.end_input(0, harness.output)
    harness.perform(right(("y", 11), ("x", 12)))
    assert pairs(harness) == [(1, 10), (2, 11), (1, 12)]
    # What came from the other stream waited for this one alone; its own rows wait on.
    assert sum(chunk.row_count for chunk in harness.snapshot().chunks) == 2
    harness.restart(harness.snapshot())
    harness.perform(right(("y", 13)))
    assert pairs(harness)[3:] == [(2, 13)]
    harness.operator.end_input(1, harness.output)
    harness.operator.end_input(0, harness.output)
    assert not harness.snapshot().chunks


def test_a_pair_without_event_time_has_none() -> None:
    harness = run_all_ways(plain_join, [left(("x", 1)), right(("x", 2), times=[4])])
    assert harness.output.timed_rows == [(Row(a="x", left=1, b="x", right=2), None)]


def integer_join() -> OperatorHarness:
    return OperatorHarness(
        RowJoinSpec(("a",), ("b",)),
        input_types=[
            Types.ROW_NAMED(["a", "left"], [Types.LONG(), Types.STRING()]),
            Types.ROW_NAMED(["b", "right"], [Types.LONG(), Types.STRING()]),
        ],
        output_type=Types.ROW_NAMED(
            ["a", "left", "b", "right"],
            [Types.LONG(), Types.STRING(), Types.LONG(), Types.STRING()],
        ),
        keys=[lambda row: row["a"], lambda row: row["b"]],
        key_type=Types.LONG(),
    )


def test_rows_with_integers_of_one_hash_do_not_meet() -> None:
    zero, same, lowest = 0, (1 << 32) + 1, -(1 << 63)
    assert len(set(hash_keys([zero, same]).tolist())) == 1
    steps: list[HarnessStep] = [
        Rows([Row(a=zero, left="p"), Row(a=same, left="q"), Row(a=lowest, left="r")], [5, 6, 7], 0),
        Rows([Row(b=same, right="s"), Row(b=lowest, right="t"), Row(b=1, right="u")], [8, 1, 9], 1),
        Rows([Row(a=1, left="v"), Row(a=same, left="w")], [2, 3], 0),
        Rows([Row(b=same, right="x"), Row(b=zero, right="y")], [4, 4], 1),
    ]
    harness = run_all_ways(integer_join, steps)
    found = [(row["left"], row["right"], time) for row, time in harness.output.timed_rows]
    assert found == [
        ("q", "s", 8), ("r", "t", 7), ("v", "u", 9), ("w", "s", 8), ("q", "x", 6), ("w", "x", 4), ("p", "y", 5)
    ]  # fmt: skip


def test_a_row_with_very_many_partners_gets_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_join, "_PAIRS_MAX", 10)
    harness = plain_join()
    harness.perform(left(*[("x", n) for n in range(20)]))
    harness.perform(right(*[("x", n) for n in range(5)]))
    assert pairs(harness) == [(n, m) for m in range(5) for n in range(20)]


rows_drawn = st.lists(
    st.tuples(st.sampled_from([ONE, OTHER, "x"]), st.integers(0, 40)), min_size=1, max_size=6
)
steps_drawn = st.lists(
    st.one_of(st.tuples(st.integers(0, 1), rows_drawn), st.integers(0, 40)), max_size=8
)


def _steps(drawn: list[Any]) -> tuple[list[HarnessStep], list[tuple[int, str, int, int, int]]]:
    """Harness steps, and all rows as (side, key, number, time, watermark as it comes)."""
    steps: list[HarnessStep] = []
    rows: list[tuple[int, str, int, int, int]] = []
    watermark = -1
    for one in drawn:
        if isinstance(one, int):
            if one > watermark:
                watermark = one
                steps.append(WatermarkAt(one))
            continue
        side, keyed = one
        numbered = [(key, len(rows) + at) for at, (key, _) in enumerate(keyed)]
        times = [time for _, time in keyed]
        steps.append((left if side == 0 else right)(*numbered, times=times))
        rows += [
            (side, key, n, time, watermark) for (key, n), time in zip(numbered, times, strict=True)
        ]
    return steps, rows


@given(steps_drawn)
def test_a_random_join_gives_every_pair_once(drawn: list[Any]) -> None:
    steps, rows = _steps(drawn)
    wanted = Counter(
        (one[2], two[2])
        for one in rows
        for two in rows
        if one[0] == 0 and two[0] == 1 and one[1] == two[1]
    )
    assert Counter(pairs(run_all_cuts(plain_join, steps))) == wanted


@given(steps_drawn)
def test_a_random_window_join_gives_the_pairs_of_each_window(drawn: list[Any]) -> None:
    steps, rows = _steps(drawn)
    timely = [one for one in rows if one[3] // SIZE * SIZE + SIZE - 1 > one[4]]
    wanted = Counter(
        (one[2], two[2])
        for one in timely
        for two in timely
        if one[0] == 0 and two[0] == 1 and one[1] == two[1] and one[3] // SIZE == two[3] // SIZE
    )
    harness = run_all_cuts(window_join, steps)
    assert Counter(pairs(harness)) == wanted
    late = harness.metrics.counter("numLateRecordsDropped").get_count()
    assert late == len(rows) - len(timely)


def test_windows_fire_one_after_the_other_in_order_of_the_left_rows() -> None:
    steps: list[HarnessStep] = [
        left(("x", 1), ("x", 2), (OTHER, 3), times=[12, 3, 4]),
        right((ONE, 10), ("x", 11), (OTHER, 12), times=[4, 13, 9]),
        WatermarkAt(5),
        right(("x", 13), times=[1]),
        left(("x", 4), times=[11]),
        WatermarkAt(9),
        left(("x", 5), times=[2]),
    ]
    harness = run_all_ways(window_join, steps)
    assert pairs(harness) == [(2, 13), (3, 12), (1, 11), (4, 11)]
    assert [time for _, time in harness.output.timed_rows] == [9, 9, 19, 19]


def test_rows_without_event_time_are_refused_in_windows() -> None:
    with pytest.raises(UserCodeError, match="timestamp"):
        window_join().perform(left(("x", 1)))


def test_columns_may_have_the_names_that_state_has_for_its_own() -> None:
    lefts = Types.ROW_NAMED(["key_hash", "fired"], [Types.STRING(), Types.INT()])
    rights = Types.ROW_NAMED(["b", "time"], [Types.STRING(), Types.INT()])
    harness = OperatorHarness(
        RowJoinSpec(("key_hash",), ("b",)),
        input_types=[lefts, rights],
        output_type=Types.ROW_NAMED(
            ["key_hash", "fired", "b", "time"],
            [Types.STRING(), Types.INT(), Types.STRING(), Types.INT()],
        ),
        keys=[lambda row: row["key_hash"], lambda row: row["b"]],
        key_type=Types.STRING(),
    )
    harness.perform(Rows([Row(key_hash="x", fired=1)], None, 0))
    harness.perform(Rows([Row(b="x", time=2)], None, 1))
    assert harness.output.rows == [Row(key_hash="x", fired=1, b="x", time=2)]


@pytest.mark.parametrize("is_windowed", [False, True])
def test_keys_of_two_columns_meet_where_both_are_equal_and_none_is_null(is_windowed: bool) -> None:
    names = ("a", "x"), ("a", "y")
    types = [Types.STRING(), Types.STRING(), Types.INT()]
    windows = EventTimeWindows(SIZE, SIZE, 0)
    harness = OperatorHarness(
        WindowRowJoinSpec(windows, *names) if is_windowed else RowJoinSpec(*names),
        input_types=[
            Types.ROW_NAMED(["a", "x", "left"], types),
            Types.ROW_NAMED(["a", "y", "right"], types),
        ],
        output_type=Types.ROW_NAMED(
            ["a", "x", "left", "y", "right"], [*types, Types.STRING(), Types.INT()]
        ),
        keys=[lambda row: (row["a"], row["x"]), lambda row: (row["a"], row["y"])],
        key_type=Types.TUPLE([Types.STRING(), Types.STRING()]),
    )
    lefts = [Row(a="k", x=ONE, left=1), Row(a="k", x=OTHER, left=2), Row(a="k", x=None, left=3)]
    rights = [Row(a="k", y=None, right=4), Row(a="k", y=OTHER, right=5)]
    harness.perform(Rows(lefts, [1, 2, 3], 0))
    harness.perform(Rows(rights, [4, 5], 1))
    harness.perform(WatermarkAt(SIZE))
    assert harness.output.rows == [Row(a="k", x=OTHER, left=2, y=OTHER, right=5)]
