"""StateWriter: writes a copy of a snapshot, as a new savepoint, with states replaced by DataFrames.

Spark brings the rows of each subtask together, and its tasks check and write them. An invalid row comes back
as a value, so that the error is Headrace's and not a worker's traceback. The driver reads and checks the open windows
that the edits affect, subtask by subtask; only the driver publishes the savepoint.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.options import KEY_FILE
from headrace.checkpoint.storage.subtask_storage import StateReader
from headrace.core.config import Settings
from headrace.spark.dataframes.push import map_in_arrow
from headrace.state_processor.edited_rows import (
    EditTarget,
    WrittenRows,
    check_schema,
    owners_of_rows,
    write_rows,
)
from headrace.state_processor.edits import EditContext, RowsSource
from headrace.state_processor.errors import (
    EditRefusedError,
    PickledKeysError,
    UnknownStateError,
)
from headrace.state_processor.key_hashing import KeyHashing
from headrace.state_processor.savepoint_editor import SavepointEditor, edit_storage
from headrace.state_processor.selection import LATEST
from headrace.state_processor.table_query import STATE_TABLES

_OWNER: Final = "$subtask"
_RESULT: Final = pa.schema(
    [
        pa.field("written", pa.binary()),
        pa.field("row", pa.string()),
        pa.field("reason", pa.string()),
    ]
)


class StateWriter:
    """Writer of an edited savepoint; `write` applies the edits in order, and the parent snapshot stays unchanged.

    Example:
        StateWriter.from_(old).replace("counter", "count", corrected).remove_keys("counter", [7]).write(
            new, reason="orders of May were counted twice")
    """

    def __init__(self, editor: SavepointEditor, settings: Settings) -> None:
        self._editor = editor
        self._settings = settings

    @classmethod
    def from_(
        cls,
        parent: str,
        *,
        checkpoint: int | str = LATEST,
        key_file: str | None = None,
        allow_pickles: bool = False,
    ) -> "StateWriter":
        """Return a writer for a savepoint, a checkpoint, or a job's checkpoints. StateProcessorError, MetadataError.

        `allow_pickles`: keys of undeclared types may be loaded, which runs code of whoever wrote the snapshot.
        """
        settings = Settings({} if key_file is None else {KEY_FILE.key: key_file})
        editor = SavepointEditor.open(
            parent, settings, str(checkpoint), allow_pickles=allow_pickles
        )
        return cls(editor, settings)

    def replace(
        self, operator: str, state: str | None, df: DataFrame, table: str = "keyed"
    ) -> "StateWriter":
        """Replace all rows of a state with the rows of `df`.

        Its columns are those of a read; `key_group` may be left out.

        Rows past their time to live are lost unless `df` was read with `includeExpired`.
        """
        source = rows_of_dataframe(df, self._settings)
        self._editor.replace_from(operator, state, source, _editable(table))
        return self

    def remove(
        self, operator: str, state: str | None = None, table: str | None = None
    ) -> "StateWriter":
        """Remove a state of an operator; without a state's name, all its keyed state and timers."""
        self._editor.remove(operator, state, None if table is None else _editable(table))
        return self

    def remove_keys(self, operator: str, keys: Sequence[Any]) -> "StateWriter":
        """Remove everything that an operator keeps for some keys: state, open windows and timers."""
        self._editor.remove_keys(operator, keys)
        return self

    def rename(self, operator: str, state: str, new_name: str) -> "StateWriter":
        """Rename a keyed state."""
        self._editor.rename(operator, state, new_name)
        return self

    def rename_operator(self, operator: str, uid: str) -> "StateWriter":
        """Move an operator's state to the operator with another uid."""
        self._editor.rename_operator(operator, uid)
        return self

    def with_max_parallelism(self, operator: str, max_parallelism: int) -> "StateWriter":
        """Change the number of key groups of an operator's keyed state, which the driver reads state by state."""
        self._editor.with_max_parallelism(operator, max_parallelism)
        return self

    def derive_window_timers(
        self, operator: str, *, allowed_lateness_ms: int = 0, is_by_clock: bool = False
    ) -> "StateWriter":
        """Add the timers that a job sets for open time windows to windows without a timer at their end or later.

        `allowed_lateness_ms`: the operator's. `is_by_clock`: its windows are of processing time. Runs in the driver.
        """
        self._editor.derive_window_timers(
            operator, allowed_lateness_ms=allowed_lateness_ms, is_by_clock=is_by_clock
        )
        return self

    def write(self, path: str, *, reason: str, author: str = "") -> str:
        """Write the new savepoint to an empty folder; return its URI.

        StateProcessorError if an edit is refused; then nothing is left. CheckpointStorageError if writing fails.
        """
        return self._editor.write(path, reason=reason, author=author).uri


def _editable(name: str) -> StateTable:
    table = STATE_TABLES.get(name)
    if table is None:
        raise UnknownStateError(f"snapshots have no table '{name}'", sorted(STATE_TABLES))
    return table


def rows_of_dataframe(df: DataFrame, settings: Settings) -> RowsSource:
    """Return a source of rows of a DataFrame, which Spark's tasks check and write."""

    def write(target: EditTarget, context: EditContext) -> WrittenRows:
        state = target.state
        check_schema(state, to_arrow_schema(df.schema, timezone="UTC"))
        if target.hashing is KeyHashing.PICKLES and not target.allow_pickles:
            raise PickledKeysError(state.title)
        schema = f"{_ddl(df)}, `{_OWNER}` int" if df.columns else f"`{_OWNER}` int"
        owned = map_in_arrow(df, _WithOwners(target), schema)
        together = owned.repartitionById(state.parallelism, f"`{_OWNER}`")
        body = _WriteRows(target, context.folder, settings)
        results = map_in_arrow(together, body, "written binary, row string, reason string")
        written = WrittenRows()
        for row in results.collect():
            if row["written"] is None:
                raise EditRefusedError(state.title, row["row"], row["reason"])
            written += msgspec.msgpack.decode(bytes(row["written"]), type=WrittenRows)
        return written

    return write


def _ddl(df: DataFrame) -> str:
    return ", ".join(f"`{one.name}` {one.dataType.simpleString()}" for one in df.schema.fields)


class _WithOwners:
    """Adds to each row the parent's subtask that owns its key.

    Rows without a key go to the first, which refuses them.
    """

    def __init__(self, target: EditTarget) -> None:
        self._target = target

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            owners = owners_of_rows(self._target, pa.Table.from_batches([batch]))
            yield batch.append_column(_OWNER, pa.array(owners))


class _WriteRows:
    """Checks and writes the rows of one subtask of the parent; returns one row."""

    def __init__(self, target: EditTarget, folder: str, settings: Settings) -> None:
        self._target = target
        self._folder = folder
        self._settings = settings

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [batch for batch in batches if batch.num_rows]
        if not held:
            return
        rows = pa.Table.from_batches(held).drop_columns([_OWNER])
        task = TaskContext.get()
        part = 0 if task is None else task.partitionId()
        writer = edit_storage(self._folder, self._settings, part)
        try:
            written = write_rows(self._target, rows, StateReader(), writer)
        except EditRefusedError as error:
            result = {"written": None, "row": error.row_text, "reason": error.reason}
        else:
            result = {"written": msgspec.msgpack.encode(written), "row": None, "reason": None}
        yield pa.RecordBatch.from_pylist([result], schema=_RESULT)
