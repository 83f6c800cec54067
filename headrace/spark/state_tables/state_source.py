"""The data source `headrace-state`: the tables of a checkpoint or savepoint as DataFrames.

Spark finds the source by itself in every session (`pyspark_headrace`); `HeadraceStateSource` lists its options. All of
this runs in Spark's Python workers, and needs no running job.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from headrace.checkpoint.errors import MetadataMissingError, SnapshotSubsumedError
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.options import KEY_FILE
from headrace.checkpoint.retention.leases import LEASE_DURATION_MS, Lease, subsumed, take_lease
from headrace.core.config import Settings, parse_duration_ms
from headrace.state_processor.change_feed import ChangeFeed
from headrace.state_processor.errors import StateProcessorError
from headrace.state_processor.json_values import keys_in_text
from headrace.state_processor.selection import (
    LATEST,
    PinnedReader,
    holder_text,
    missing_explained,
    open_snapshot,
    snapshot_uri,
)
from headrace.state_processor.stored_state import converted
from headrace.state_processor.table_query import (
    OpenTable,
    TableQuery,
    key_groups_in_text,
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
    "includeExpired",
    "leaseDuration",
    "readChangeFeed",
    "changeStartCheckpoint",
    "changeEndCheckpoint",
)
_OF_FEEDS: Final = ("changeStartCheckpoint", "changeEndCheckpoint")
_NOT_OF_FEEDS: Final = ("checkpoint", "keys", "keyGroups", "unpickle", "includeExpired")
_LATEST_ATTEMPTS: Final = 3
"""Number of tries to find the latest checkpoint, as it may be subsumed meanwhile."""


class HeadraceStateSource(datasource.DataSource):
    """Reads the table of a snapshot that the options name.

    `path`: a snapshot, or the checkpoints of a job; then `checkpoint` (an id or `latest`) chooses one. `table`:
    `keyed`, `timers`, `windows`, `operator_state`, `source_splits`, `items`, `operators`, `snapshot`, `watermarks` or
    `pending_commits`. `operator` (uid, id or name) and `state`: needed if there are several. `keys` (a JSON list) and
    `keyGroups` (like `3,7-9`) limit the rows that are read. `keyFile`: the key of the metadata. `unpickle`: whether
    values of undeclared types are loaded and shown as Python prints them, which runs code of whoever wrote them.

    `includeExpired`: whether rows past their time to live are shown too, with a column `expired`.
    `readChangeFeed`: reads the changes of a state between the checkpoints `changeStartCheckpoint` and
    `changeEndCheckpoint` (`latest`), with a column `change_type`: `insert`, `update` or `delete`.
    `leaseDuration`: how long the snapshot is kept for a query that does not renew its lease, such as `5 min`.

    Filters of Spark are not used: PySpark 4.3 reuses the reader of one query for later queries of the same DataFrame,
    which would miss the rows that a filter left out.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._chosen = _chosen(options)
        self._settings = _settings(self._chosen)
        self._duration_ms = _lease_duration_ms(self._chosen)
        # Resolved once, here: another checkpoint may be the latest when the rows are read.
        self._pinned = self._pinned_snapshots()

    @property
    def uris(self) -> tuple[str, ...]:
        """Return the folders of the snapshots that are read: one, or the two ends of a feed."""
        return tuple(uri for uri, _ in self._pinned)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(self.open().schema)

    def reader(self, schema: StructType) -> "HeadraceStateReader":
        return HeadraceStateReader(self, schema)

    def open(self) -> OpenTable | ChangeFeed:
        """Return the table, or its change feed.

        StateProcessorError, MetadataError or SnapshotSubsumedError if it cannot be read.
        """
        with missing_explained(*self.uris):
            snapshots = [self._snapshot(uri) for uri in self.uris]
            if self._is_feed:
                start, end = snapshots
                return ChangeFeed.open(start, end, *self._named)
            (snapshot,) = snapshots
            return self._query().open(snapshot)

    def renewed_leases(self) -> list[Lease]:
        """Renew the leases that keep the snapshots for a query. SnapshotSubsumedError if one was deleted.

        All queries of a DataFrame share its leases, as no query knows when the last one is over.
        """
        return [lease.renewed() for _, lease in self._pinned if lease is not None]

    @property
    def _is_feed(self) -> bool:
        return _is_on(self._chosen, "readChangeFeed")

    @property
    def _named(self) -> tuple[str, str | None, str | None]:
        chosen = self._chosen
        return chosen.get("table", "keyed"), chosen.get("operator"), chosen.get("state")

    def _query(self) -> TableQuery:
        groups, keys = self._chosen.get("keyGroups"), self._chosen.get("keys")
        return TableQuery(
            *self._named,
            loads_pickles=_is_on(self._chosen, "unpickle"),
            key_groups=None if groups is None else key_groups_in_text(groups),
            keys=None if keys is None else keys_in_text(keys),
            includes_expired=_is_on(self._chosen, "includeExpired"),
        )

    def _snapshot(self, uri: str) -> CompletedCheckpoint:
        try:
            return open_snapshot(uri, self._settings)
        except MetadataMissingError as error:
            raise subsumed(uri) from error  # it was there when the source was made

    def _take_lease(self, uri: str) -> Lease | None:
        if not self._duration_ms:
            return None
        return take_lease(uri, holder_text(), duration_ms=self._duration_ms)

    def _pinned_snapshots(self) -> list[tuple[str, Lease | None]]:
        chosen = self._chosen
        if not self._is_feed:
            return [self._pinned_snapshot(chosen.get("checkpoint", LATEST))]
        start, end = chosen["changeStartCheckpoint"], chosen.get("changeEndCheckpoint", LATEST)
        return [self._pinned_snapshot(start), self._pinned_snapshot(end)]

    def _pinned_snapshot(self, checkpoint: str) -> tuple[str, Lease | None]:
        for attempts_left in reversed(range(_LATEST_ATTEMPTS)):
            uri = snapshot_uri(self._chosen["path"], checkpoint)
            try:
                return uri, self._take_lease(uri)
            except SnapshotSubsumedError:
                if not attempts_left:
                    raise
        raise AssertionError("the last attempt returns or raises")


class PartOfTable(datasource.InputPartition):
    """Part of a table that one task reads, and the leases that protect it."""

    def __init__(self, table: OpenTable | ChangeFeed, part: Any, leases: Sequence[Lease]) -> None:
        super().__init__(None)
        self.table = table
        self.part = part
        self.leases = leases


class HeadraceStateReader(datasource.DataSourceReader):
    """Reads a table part by part, under leases that each part renews."""

    def __init__(self, source: HeadraceStateSource, schema: StructType) -> None:
        self._source = source
        self._schema = schema

    def partitions(self) -> Sequence[datasource.InputPartition]:
        leases = self._source.renewed_leases()
        table = self._source.open()
        if isinstance(table, OpenTable) and all(one.chunk is None for one in table.parts):
            # All rows were read just now, and no other query of the DataFrame reads more.
            for lease in leases:
                lease.give_back()
            leases = []
        bare = table.without_parts()
        return [PartOfTable(bare, part, leases) for part in table.parts]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, PartOfTable):
            return  # Spark creates a partition even if there is nothing to read
        schema = to_arrow_schema(self._schema, timezone="UTC")
        # The leases may have ended while the task waited, or with an earlier run of this query.
        leases = [one.renewed() for one in partition.leases]
        reader = PinnedReader(*self._source.uris)
        for batch in partition.table.read(partition.part, reader):
            leases = [one.renewed(is_certain=False) for one in leases]
            columns = [converted(batch.column(one.name), one.type) for one in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _chosen(options: Mapping[str, str]) -> dict[str, str]:
    """Return options under their declared names, as Spark passes them in lower case."""
    names = {name.lower(): name for name in _OPTIONS}
    unknown = sorted(name for name in options if name.lower() not in names)
    if unknown:
        known = ", ".join(_OPTIONS)
        raise StateProcessorError(f"{FORMAT} has no option '{unknown[0]}': its options are {known}")
    chosen = {names[name.lower()]: value for name, value in options.items()}
    if "path" not in chosen:
        raise StateProcessorError(
            f"{FORMAT} needs the option 'path': a snapshot, or a job's checkpoints"
        )
    _check_feed(chosen)
    return chosen


def _is_on(chosen: Mapping[str, str], name: str) -> bool:
    return chosen.get(name, "false").lower() == "true"


def _check_feed(chosen: Mapping[str, str]) -> None:
    """Raise StateProcessorError if options of a feed and of a single snapshot are mixed."""
    is_feed = _is_on(chosen, "readChangeFeed")
    if is_feed and "changeStartCheckpoint" not in chosen:
        raise StateProcessorError("readChangeFeed needs the option 'changeStartCheckpoint'")
    unfit = _NOT_OF_FEEDS if is_feed else _OF_FEEDS
    mixed = [name for name in unfit if name in chosen]
    if mixed:
        said = "cannot be combined with" if is_feed else "needs"
        raise StateProcessorError(f"'{mixed[0]}' {said} readChangeFeed")


def _settings(chosen: Mapping[str, str]) -> Settings:
    key_file = chosen.get("keyFile")
    return Settings({} if key_file is None else {KEY_FILE.key: key_file})


def _lease_duration_ms(chosen: Mapping[str, str]) -> int:
    """Return the value of `leaseDuration` in milliseconds; 0: no lease.

    ConfigurationError, StateProcessorError if invalid.
    """
    given = chosen.get("leaseDuration")
    if given is None:
        return LEASE_DURATION_MS
    duration_ms = int(parse_duration_ms("leaseDuration", given))
    if duration_ms < 0:
        raise StateProcessorError(
            f"leaseDuration is '{given}': it must be 0 for no lease, or a duration"
        )
    return duration_ms
