"""Chunks of state: how many rows they have together."""

from msgspec.structs import replace

from headrace.checkpoint.handles import StateTable, row_count_of
from tests.unit.checkpoint.snapshots import inside, keyed


def test_rows_of_chunks_are_added_up_unless_some_do_not_tell_theirs() -> None:
    chunks = [keyed(inside(b"a"), 0, 63), keyed(inside(b"b"), 64, 127)]
    assert row_count_of(chunks) == 6
    assert row_count_of(()) == 0
    assert row_count_of([*chunks, replace(chunks[0], table=StateTable.NATIVE)]) is None
