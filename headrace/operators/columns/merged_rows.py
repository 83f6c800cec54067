"""MergedRows: rows of a columnar state, of which new ones are merged into the others in large steps."""

from collections.abc import Callable
from typing import Final

import pyarrow as pa

_PENDING_SIZE_MIN: Final = 65_536


def is_merge_due(pending_size: int, merged_size: int) -> bool:
    """Whether pending rows are worth a vectorised step, and at least as many as the merged ones."""
    return pending_size >= max(_PENDING_SIZE_MIN, merged_size)


class MergedRows:
    """The table `merged` and, in order of arrival, `pending` tables that are not merged into it yet.

    `size_of` returns the cost of merging a table, in rows. All tables have the columns of `schema`.
    """

    def __init__(
        self,
        schema: pa.Schema,
        pending: list[pa.Table],
        size_of: Callable[[pa.Table], int] = lambda table: table.num_rows,
    ) -> None:
        self._size_of = size_of
        self.merged: pa.Table = schema.empty_table()
        self.pending = pending
        self._merged_size = 0
        self._pending_size = sum(map(size_of, pending))

    @property
    def tables(self) -> list[pa.Table]:
        """All rows, merged ones first."""
        return [self.merged, *self.pending]

    @property
    def is_merge_due(self) -> bool:
        """Whether it is time to merge."""
        return is_merge_due(self._pending_size, self._merged_size)

    def add(self, rows: pa.Table) -> None:
        """Add new rows, at least one."""
        self.pending.append(rows)
        self._pending_size += self._size_of(rows)

    def replace(self, merged: pa.Table) -> None:
        """Hold `merged` in place of all rows."""
        self.merged, self.pending = merged, []
        self._merged_size, self._pending_size = self._size_of(merged), 0
