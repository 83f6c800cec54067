"""The data source `headrace-state`: the tables of a checkpoint or savepoint as DataFrames.

Spark finds it by itself in every session (`pyspark_headrace`). Its options are those of `HeadraceStateSource`. All of
this runs in Python workers of Spark, and nothing of it needs a job.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from headrace.checkpoint.options import KEY_FILE
from headrace.checkpoint.storage import StateReader
from headrace.core.config import Settings
from headrace.state_processor.errors import StateProcessorError
from headrace.state_processor.selection import LATEST, open_snapshot, snapshot_uri
from headrace.state_processor.stored_types import converted
from headrace.state_processor.table_query import (
    OpenTable,
    TablePart,
    TableQuery,
    key_groups_in_text,
    keys_in_text,
)

FORMAT: Final = "headrace-state"
_OPTIONS: Final = (
    "path",
    "checkpoint",
    "table",
    "operator",
    "state",
    "keys",
    "keyGroups",
    "keyFile",
    "unpickle",
)


class HeadraceStateSource(datasource.DataSource):
    """Reads one table of a snapshot, said in options.

    `path`: of a snapshot, or of a job's checkpoints, and `checkpoint` (an id or `latest`) which of these. `table`:
    `keyed`, `timers`, `windows`, `operator_state`, `source_splits`, `items`, `operators`, `snapshot`, `watermarks` or
    `pending_commits`. `operator` (uid, id or name) and `state`: where there are several. `keys` (a JSON list) and
    `keyGroups` (like `3,7-9`): the only ones that are read. `keyFile`: the key of the metadata. `unpickle`: whether
    values of no declared type are loaded and shown as Python prints them, which runs code of whoever wrote them.

    Filters of Spark are not taken: PySpark 4.3 keeps the reader of one query for the next ones of the same DataFrame,
    so that what a filter left out would be missing there.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._chosen = _chosen(options)
        self._settings = _settings(self._chosen)
        # Here, once: what is the latest now may not be so any more when the rows are read.
        self._uri = snapshot_uri(self._chosen["path"], self._chosen.get("checkpoint", LATEST))

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(self.open().schema)

    def reader(self, schema: StructType) -> "HeadraceStateReader":
        return HeadraceStateReader(self, schema)

    def open(self) -> OpenTable:
        """Return the table. StateProcessorError, MetadataError."""
        snapshot = open_snapshot(self._uri, self._settings)
        groups, keys = self._chosen.get("keyGroups"), self._chosen.get("keys")
        query = TableQuery(
            self._chosen.get("table", "keyed"),
            self._chosen.get("operator"),
            self._chosen.get("state"),
            loads_pickles=self._chosen.get("unpickle", "false").lower() == "true",
            key_groups=None if groups is None else key_groups_in_text(groups),
            keys=None if keys is None else keys_in_text(keys),
        )
        return query.open(snapshot)


class PartOfTable(datasource.InputPartition):
    """One file of a state, and what must be known to read it."""

    def __init__(self, table: OpenTable, part: TablePart) -> None:
        super().__init__(None)
        self.table = table
        self.part = part


class HeadraceStateReader(datasource.DataSourceReader):
    """Reads a table file by file."""

    def __init__(self, source: HeadraceStateSource, schema: StructType) -> None:
        self._source = source
        self._schema = schema

    def partitions(self) -> Sequence[datasource.InputPartition]:
        table = self._source.open()
        bare = table.without_parts()
        return [PartOfTable(bare, part) for part in table.parts]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, PartOfTable)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for batch in partition.table.read(partition.part, StateReader()):
            columns = [converted(batch.column(one.name), one.type) for one in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _chosen(options: Mapping[str, str]) -> dict[str, str]:
    """Options under the names that they have here: Spark gives them in small letters."""
    names = {name.lower(): name for name in _OPTIONS}
    unknown = sorted(name for name in options if name.lower() not in names)
    if unknown:
        known = ", ".join(_OPTIONS)
        raise StateProcessorError(f"{FORMAT} has no option '{unknown[0]}': there are {known}")
    chosen = {names[name.lower()]: value for name, value in options.items()}
    if "path" not in chosen:
        raise StateProcessorError(
            f"{FORMAT} needs the option 'path': a snapshot, or a job's checkpoints"
        )
    return chosen


def _settings(chosen: Mapping[str, str]) -> Settings:
    key_file = chosen.get("keyFile")
    return Settings({} if key_file is None else {KEY_FILE.key: key_file})
