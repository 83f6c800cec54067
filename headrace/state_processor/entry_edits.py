"""EntryChanges: sets or deletes single entries of a keyed state by key; all others stay as they are.

All rows of the state are in memory meanwhile, so that their number is limited.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.state.columns import (
    KEY,
    KEY_GROUP,
    LIST_POS,
    MAP_KEY,
    NAMESPACE,
    VALUE,
    VALUE_ROW_KIND,
)
from headrace.state_processor.edited_rows import EditTarget, WrittenRows, without_keys, write_rows
from headrace.state_processor.edits import EditContext, stored_rows
from headrace.state_processor.errors import StateProcessorError
from headrace.state_processor.json_values import values_of_json
from headrace.state_processor.key_hashing import hashable_column
from headrace.state_processor.stored_state import StoredState

ENTRY_EDIT_ROWS_MAX: Final = 200_000
"""Maximum number of rows of a state for such edits, as this process handles each row in Python."""


@dataclass(frozen=True)
class EntryChanges:
    """Changes of one state, in order. Keys and values are JSON values, in the form of `json_values`.

    Called as a source of rows, it returns what it wrote.
    """

    changes: Sequence["EntryChange"]

    def __call__(self, target: EditTarget, context: EditContext) -> WrittenRows:
        """Write the rows of the state with the changes. StateProcessorError."""
        state = target.state
        if state.row_count > ENTRY_EDIT_ROWS_MAX:
            raise StateProcessorError(
                f"{state.title} has {state.row_count} rows, but single entries can be edited in states of at most "
                f"{ENTRY_EDIT_ROWS_MAX} rows: edit it with headrace.spark.state_writer.StateWriter"
            )
        if KEY not in state.schema.names or KEY in state.opaque:
            raise StateProcessorError(
                f"{state.title} has no keys of a declared type: edit it with headrace.spark.state_writer.StateWriter, "
                "which may load the job's pickles"
            )
        rows = pa.concat_tables(stored_rows(state, context)).drop_columns([KEY_GROUP])
        for change in self.changes:
            rows = change.made(state, rows)
        return write_rows(target, rows, context.reader, context.writer)


@dataclass(frozen=True)
class EntryChange:
    """Change of one entry by its key.

    `is_deleted`: delete the entry with all its elements; else `value` is its new value.
    """

    key: Any
    value: Any = None
    is_deleted: bool = False

    def made(self, state: StoredState, rows: pa.Table) -> pa.Table:
        """Return the rows with this change applied. StateProcessorError if it cannot be."""
        keys = values_of_json([self.key], state.schema.field(KEY).type, f"the key of {state.title}")
        (key,) = hashable_column(keys)
        return _deleted(state, rows, key) if self.is_deleted else self._set(state, rows, keys, key)

    def _set(self, state: StoredState, rows: pa.Table, keys: pa.Array, key: Hashable) -> pa.Table:
        _check_single_values(state)
        wanted = state.schema.field(VALUE).type
        values = values_of_json([self.value], wanted, f"the value of {state.title}")
        is_meant = np.array([one == key for one in hashable_column(rows.column(KEY))], np.bool_)
        others, found = rows.filter(pa.array(~is_meant)), rows.filter(pa.array(is_meant))
        columns: dict[str, Any] = {
            name: pa.nulls(1, rows.schema.field(name).type) for name in rows.column_names
        }
        if found.num_rows:
            columns = {name: found.column(name) for name in rows.column_names}
        columns |= {KEY: keys, VALUE: values}
        if VALUE_ROW_KIND in columns:
            columns[VALUE_ROW_KIND] = pa.nulls(1, rows.schema.field(VALUE_ROW_KIND).type)
        return pa.concat_tables([others, pa.table(columns, schema=rows.schema)])


def _deleted(state: StoredState, rows: pa.Table, key: Hashable) -> pa.Table:
    kept, found = without_keys({key}, rows)
    if not found:
        raise StateProcessorError(
            f"{state.title} has no entry for the key {key!r}: give keys as the column 'key' shows them"
        )
    return kept


def _check_single_values(state: StoredState) -> None:
    names = state.schema.names
    if VALUE not in names or any(name in names for name in (LIST_POS, MAP_KEY, NAMESPACE)):
        raise StateProcessorError(
            f"{state.title} has no single value per key, but elements, entries or windows: delete the whole key, or "
            f"edit it with headrace.spark.state_writer.StateWriter"
        )
    if VALUE in state.opaque:
        raise StateProcessorError(
            f"{state.title} has values of undeclared type, which are stored as pickles: declare a type, or set them "
            f"in the program"
        )
