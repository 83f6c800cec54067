"""New rows are merged into state rarely enough that each row is moved only a few times."""

import pyarrow as pa
import pytest

from headrace.core.config import Settings
from headrace.core.process.state_memory import StateMemory
from headrace.state.columnar_rows import MergedRows, is_merge_due


@pytest.mark.parametrize(
    ("pending", "merged", "wanted"),
    [
        (65_535, 0, False),
        (65_536, 0, True),
        (65_536, 65_536, True),
        (65_536, 65_537, False),
        (1_000_000, 1_000_000, True),
    ],
)
def test_rows_wait_for_a_large_step_and_for_as_many_as_there_are(
    pending: int, merged: int, wanted: bool
) -> None:
    assert is_merge_due(pending, merged) == wanted


def test_rows_are_pending_until_they_are_replaced_by_merged_ones() -> None:
    table = pa.table({"n": [1, 2]})
    memory = StateMemory("merging", "rows", Settings())
    rows = MergedRows(table.schema, [table], memory, lambda rows: 40_000 * rows.num_rows)
    assert memory.size_bytes == 16
    assert rows.is_merge_due
    rows.replace(table)
    rows.add(table.slice(0, 1))
    assert [one.num_rows for one in rows.tables] == [2, 1]
    assert not rows.is_merge_due
    assert rows.size_bytes == memory.size_bytes == 24
    memory.close()
