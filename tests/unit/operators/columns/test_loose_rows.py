"""When loose rows are brought together with those in state: rarely enough that each is moved a few times only."""

import pytest

from headrace.operators.columns.stored_rows import are_enough_to_settle


@pytest.mark.parametrize(
    ("loose", "settled", "wanted"),
    [
        (65_535, 0, False),
        (65_536, 0, True),
        (65_536, 65_536, True),
        (65_536, 65_537, False),
        (1_000_000, 1_000_000, True),
    ],
)
def test_rows_wait_for_a_large_step_and_for_as_many_as_there_are(
    loose: int, settled: int, wanted: bool
) -> None:
    assert are_enough_to_settle(loose, settled) == wanted
