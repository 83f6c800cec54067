"""Figures of several subtasks as one: sums, skews, the largest keys and timers of all; and what people read of them."""

from headrace.api.client.live_state import OperatorFigures
from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.state_queries import (
    KeyFigures,
    KeyGroupFigures,
    StateFigures,
    TimerFigures,
)

FIRST = StateFigures(
    StateTable.KEYED,
    "count",
    4,
    300,
    (KeyGroupFigures(1, 3, 200), KeyGroupFigures(2, 1, 100)),
    (KeyFigures("'a'", 3, 200), KeyFigures("'b'", 1, 100)),
    expired_count=1,
    oldest_window_ms=70,
)
SECOND = StateFigures(
    StateTable.KEYED,
    "count",
    6,
    60,
    (KeyGroupFigures(9, 6, 60),),
    (KeyFigures("'c'", 6, 60),),
    are_top_keys_exact=False,
    expired_count=2,
    oldest_window_ms=50,
    is_partial=True,
)
TIMERS = StateFigures(
    StateTable.TIMERS,
    "timers",
    3,
    30,
    timers=(TimerFigures("event", 5, 4, (1, 0, 0, 0, 0, 0, 0, 2)),),
)
MORE_TIMERS = StateFigures(
    StateTable.TIMERS,
    "timers",
    1,
    10,
    timers=(
        TimerFigures("event", 5, 2, (1, 0, 0, 0, 0, 0, 0, 0)),
        TimerFigures("processing", 9, 10, (0, 4, 0, 0, 0, 0, 0, 0)),
    ),
)
FIGURES = OperatorFigures("counter", ((FIRST, TIMERS), (SECOND, MORE_TIMERS), ()))


def test_a_state_is_summed_up_over_its_subtasks() -> None:
    count = FIGURES.state("count")
    assert (count.row_count, count.size_bytes) == (10, 360)
    assert (count.expired_count, count.oldest_window_ms) == (3, 50)
    assert (count.is_partial, count.are_top_keys_exact) == (True, False)
    # The largest over the mean: of three key groups, and of three subtasks, one of which has nothing.
    assert count.key_group_skew == 200 / 120
    assert count.subtask_skew == 300 / 120
    assert [key["key"] for key in count.top_keys] == ["'a'", "'b'", "'c'"]


def test_timers_are_added_up_by_domain() -> None:
    event, processing = FIGURES.state("timers").timers
    assert (event["domain"], event["next_ms"], event["due"], event["later"]) == ("event", 2, 2, 2)
    assert (processing["domain"], processing["1 s"]) == ("processing", 4)


def test_figures_are_tables_too() -> None:
    rows = FIGURES.table().to_pylist()
    assert [(row["state"], row["rows"], row["key_groups"]) for row in rows] == [
        ("count", 10, 3),
        ("timers", 4, 0),
    ]
    assert [(row["subtask"], row["key_group"]) for row in FIGURES.key_groups().to_pylist()] == [
        (0, 1),
        (0, 2),
        (1, 9),
    ]
    assert OperatorFigures("empty", ((),)).table().num_rows == 0


def test_people_read_the_largest_of_it_first() -> None:
    assert str(FIGURES).splitlines() == [
        "operator 'counter', 3 subtasks",
        "  count (keyed): 10 rows, 360 B, key groups x1.7, subtasks x2.5, 30% expired, oldest window 50, "
        "only partly read",
        "    largest keys: 'a' 3 rows, 'b' 1 rows, 'c' 6 rows",
        "  timers (timers): 4 rows, 40 B, subtasks x2.2",
        "    event timers: 2 due, 2 later",
        "    processing timers: 4 within 1 s",
    ]
