"""Every row of a pushed partition counts once, however often and however cut it is sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.dataframe.partition_progress import PartitionProgress, PushedRowsError


def test_a_second_attempt_s_rows_are_skipped_up_to_what_came() -> None:
    progress = PartitionProgress(3)
    assert progress.rows_to_skip(0, 0, 100) == 0
    assert progress.rows_to_skip(1, 0, 60) == 60
    assert progress.rows_to_skip(1, 60, 60) == 40
    progress.end(120)
    assert progress.is_finished


def test_an_older_attempt_is_not_listened_to() -> None:
    progress = PartitionProgress(0)
    progress.rows_to_skip(1, 0, 10)
    assert progress.rows_to_skip(0, 10, 5) == 5
    assert progress.accepted_row_count == 10


def test_missing_rows_are_an_error() -> None:
    progress = PartitionProgress(2)
    with pytest.raises(PushedRowsError, match="partition 2: rows 0 to 9 did not come"):
        progress.rows_to_skip(0, 10, 5)


def test_an_end_with_another_number_of_rows_is_an_error() -> None:
    progress = PartitionProgress(2)
    progress.rows_to_skip(0, 0, 5)
    with pytest.raises(PushedRowsError, match="7 rows were sent and 5 came"):
        progress.end(7)


@given(
    st.integers(1, 200), st.lists(st.tuples(st.integers(1, 40), st.integers(0, 200)), max_size=6)
)
def test_attempts_that_break_off_anywhere_leave_each_row_once(
    row_count: int, attempts: list[tuple[int, int]]
) -> None:
    progress = PartitionProgress(0)
    accepted: list[int] = []
    for number, (batch_size, break_off) in enumerate([*attempts, (7, row_count)]):
        for offset in range(0, min(row_count, max(break_off, 0)), batch_size):
            size = min(batch_size, row_count - offset)
            skipped = progress.rows_to_skip(number, offset, size)
            accepted += range(offset + skipped, offset + size)
    progress.end(row_count)
    assert accepted == list(range(row_count))
