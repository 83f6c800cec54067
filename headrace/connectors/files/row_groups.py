"""Row groups of a Parquet file: which of them a split reads, and how rows are counted where some are left out."""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.functions.column_conditions import ColumnCondition, ValueRange

_BATCH_BYTES: Final = 4 << 20
_BATCH_ROWS_MIN: Final = 1024
_CODED_ROW_BYTES: Final = 2
"""Codes with their texts take less for each row: what more texts take, which come with every batch, is not worth it."""
_CODED_ROWS_MIN: Final = 16_384
"""For fewer it takes longer to open the file for them than they save."""


class SelectedGroups:
    """The row groups whose middle lies in a split and that are not behind its position, without `pruned` ones.

    `position` counts the rows of all groups of the split, left out or not: so it means the same under any condition.
    """

    def __init__(
        self, metadata: Any, begin: int, end: int, position: int, pruned: Collection[int]
    ) -> None:
        self.indexes: list[int] = []
        self.rows_to_skip = 0
        self._position = position
        self._starts: list[int] = []
        self._ends_when_read: list[int] = []
        next_start = read = 0
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            if not begin <= _middle(group) < end:
                continue
            start, next_start = next_start, next_start + group.num_rows
            if next_start <= position or index in pruned:
                continue
            if not self.indexes:
                self.rows_to_skip = max(0, position - start)
            self.indexes.append(index)
            read += group.num_rows
            self._starts.append(start)
            self._ends_when_read.append(read)

    def position_after(self, read_count: int) -> int:
        """Return the position behind so many rows of the selected groups, those to skip among them."""
        if not read_count:
            return self._position
        at = bisect_left(self._ends_when_read, read_count)
        before = self._ends_when_read[at - 1] if at else 0
        return self._starts[at] + read_count - before


def pruned_row_groups(
    metadata: Any, stored: pa.Schema, condition: ColumnCondition, schema: pa.Schema
) -> frozenset[int]:
    """Return the row groups of a Parquet file for none of whose rows `condition` holds, as their statistics say.

    Nothing is known of columns that are `stored` in other types than those of `schema`: what is read is cast.
    """
    comparable = [field.name for field in schema if _compare_as_stored(stored, field)]
    return frozenset(
        index
        for index in range(metadata.num_row_groups)
        if not condition.may_hold(_ranges(metadata.row_group(index), comparable))
    )


@dataclass(frozen=True)
class ReadExtent:
    """How much some row groups hold of the columns that are read.

    `size_bytes`: as they lie in the file. `full_size_bytes`: uncompressed. `coded_texts`: the columns of texts that
    are there as codes, of few texts for so many rows that it pays to read them as such.
    """

    row_count: int
    size_bytes: int
    full_size_bytes: int
    coded_texts: Sequence[str]

    def batch_rows(self, wanted: int) -> int:
        """Return how many rows to read at once: `wanted`, or fewer where they are long."""
        fitting = _BATCH_BYTES * self.row_count // max(1, self.full_size_bytes)
        return min(wanted, max(_BATCH_ROWS_MIN, fitting)) if self.row_count else wanted


def read_extent(metadata: Any, groups: Sequence[int], schema: pa.Schema) -> ReadExtent:
    """Return how much these row groups hold of the columns of a schema."""
    names = frozenset(schema.names)
    row_count = size_bytes = full_size_bytes = 0
    coded = {field.name for field in schema if pa.types.is_string(field.type)}
    for index in groups:
        group = metadata.row_group(index)
        row_count += group.num_rows
        for column in _columns_of(group, names):
            size_bytes += column.total_compressed_size
            column_bytes = column.total_uncompressed_size
            full_size_bytes += column_bytes
            name = column.path_in_schema
            if name in coded and not _has_codes(column, column_bytes, group.num_rows):
                coded.discard(name)
    is_worth_it = row_count >= _CODED_ROWS_MIN
    return ReadExtent(row_count, size_bytes, full_size_bytes, sorted(coded) if is_worth_it else ())


def _has_codes(column: Any, column_bytes: int, row_count: int) -> bool:
    """Whether no text stands in the place of a row, which would take four bytes before the text itself."""
    return column.has_dictionary_page and column_bytes < _CODED_ROW_BYTES * row_count


def _columns_of(group: Any, names: Collection[str]) -> Iterator[Any]:
    """Yield what a row group says of each column of these names, or of its parts."""
    columns = (group.column(number) for number in range(group.num_columns))
    return (one for one in columns if one.path_in_schema.partition(".")[0] in names)


def _compare_as_stored(stored: pa.Schema, field: pa.Field) -> bool:
    """Whether a column's values are ordered as its statistics are."""
    kinds = pa.types
    one = stored.field(field.name).type
    stored_type = one.value_type if kinds.is_dictionary(one) else one
    is_ordered = (
        kinds.is_signed_integer(stored_type)
        or kinds.is_floating(stored_type)
        or kinds.is_string(stored_type)
        or kinds.is_boolean(stored_type)
    )
    return is_ordered and stored_type == field.type


def _ranges(group: Any, names: Collection[str]) -> dict[str, ValueRange]:
    ranges: dict[str, ValueRange] = {}
    for number in range(group.num_columns):
        column = group.column(number)
        statistics = column.statistics
        if column.path_in_schema not in names or statistics is None:
            continue
        if statistics.has_null_count and statistics.null_count == group.num_rows:
            ranges[column.path_in_schema] = ValueRange(None, None)
        # What is not equal to itself is NaN, which has no place in any order.
        elif statistics.has_min_max and statistics.min == statistics.min:
            ranges[column.path_in_schema] = ValueRange(statistics.min, statistics.max)
    return ranges


def _middle(group: Any) -> int:
    """Return the offset in the file that says whose the group is."""
    columns = [group.column(number) for number in range(group.num_columns)]
    begins = [column.data_page_offset for column in columns]
    begins += [column.dictionary_page_offset for column in columns if column.has_dictionary_page]
    return min(begins, default=0) + sum(one.total_compressed_size for one in columns) // 2
