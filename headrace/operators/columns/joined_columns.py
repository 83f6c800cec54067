"""JoinedColumns: what a join of two streams keeps of each of them, and which of it a pair has."""

from collections.abc import Collection
from typing import Final

import pyarrow as pa

from headrace.core.operator_types import OperatorTypes
from headrace.core.types.arrow_mapping import data_schema
from headrace.operators.columns.hashed_rows import KEY_HASH_FIELD

SIDES: Final = ("left-rows", "right-rows")
"""Names of what is kept, in snapshots."""


class JoinedColumns:
    """A pair has the columns of its left row, then those of its right row that are not `shared` with the left one.

    What is kept of a side has two more columns at its end: the hash of the key, and `time_column`.
    """

    def __init__(self, types: OperatorTypes, shared: Collection[str], time_column: str) -> None:
        self.kept_schemas: Final = [
            data_schema(batch_type.value_type)
            .append(KEY_HASH_FIELD)
            .append(pa.field(time_column, pa.int64()))
            for batch_type in types.inputs
        ]
        self._names: Final = data_schema(types.output.value_type).names
        left_names, right_names = (data_schema(each.value_type).names for each in types.inputs)
        self.of_sides: Final = (left_names, [name for name in right_names if name not in shared])
        """Which columns of a left and of a right row a pair has."""

    def table(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """Return the pairs of rows that stand beside each other in both tables."""
        names = zip((left, right), self.of_sides, strict=True)
        columns = [column for side, own in names for column in side.select(own).columns]
        return pa.Table.from_arrays(columns, names=self._names).combine_chunks()
