from collections import Counter

import pytest

from benchmarks.nexmark.flames import (
    Cell,
    area_of,
    cells_of,
    flames_text,
    own_shares,
    read_stacks,
    write_stacks,
)

START = "Thread.run (threading.py:971)"
EMIT = "RecordWriter.emit (headrace/network/writers/record_writer.py:106)"
SPLIT = "RecordWriter._split (headrace/network/writers/record_writer.py:207)"
TAKE = "take (pyarrow/compute.py:468)"
WAIT = "Condition.wait (threading.py:295)"
PROFILE = f"""\
{START};{EMIT} 10
{START};{EMIT};{SPLIT};{TAKE} 30
{START};{TAKE} 60
{START};{EMIT};{WAIT} 500
"""


def test_what_waits_is_left_out() -> None:
    assert read_stacks(PROFILE) == {
        (START, EMIT): 10,
        (START, EMIT, SPLIT, TAKE): 30,
        (START, TAKE): 60,
    }


def test_what_is_written_is_read_again() -> None:
    stacks = read_stacks(PROFILE)
    assert read_stacks(write_stacks(stacks)) == stacks


def test_what_was_seldom_seen_counts_for_its_caller() -> None:
    stacks = Counter({(START, EMIT): 990, (START, EMIT, SPLIT): 3, (START, EMIT, SPLIT, TAKE): 4})
    assert read_stacks(write_stacks(stacks)) == {(START, EMIT): 997}


def test_functions_stand_below_their_callers_the_widest_first() -> None:
    assert list(cells_of(read_stacks(PROFILE))) == [
        Cell(0, 0.0, 0.6, TAKE),
        Cell(0, 0.6, 0.4, EMIT),
        Cell(1, 0.6, 0.3, SPLIT),
        Cell(2, 0.6, 0.3, TAKE),
    ]


def test_a_function_s_own_share_is_without_those_that_it_calls() -> None:
    assert own_shares(read_stacks(PROFILE)) == [(TAKE, 90.0), (EMIT, 10.0)]


@pytest.mark.parametrize(
    ("frame", "area"),
    [
        (EMIT, "network"),
        (TAKE, "pyarrow"),
        (START, "elsewhere"),
        ("f (headrace/core/x.py:1)", "other parts of Headrace"),
    ],
)
def test_a_frame_belongs_to_a_part_of_the_system(frame: str, area: str) -> None:
    assert area_of(frame) == area


def test_the_chapter_has_a_picture_and_a_table_for_each_query() -> None:
    text = flames_text({"q5": read_stacks(PROFILE)}, ["nexmark_flames_q5"])
    assert "![flames q5](pictures/nexmark_flames_q5.svg)" in text
    assert f"| `{TAKE}` | 90 |" in text
    assert flames_text({}, []) == ""
