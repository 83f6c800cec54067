"""The data source `headrace`: a log of batches as a DataFrame, bounded or streaming, and as the sink of a query.

Offsets are numbers of batches; each batch holds the rows committed by one checkpoint of the job. Spark finds the source
by itself in every session (`pyspark_headrace_stream`). All of this runs in Spark's Python workers: query and job share
only the log's folder, so that either may end and restart without the other.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import datasource
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.checkpoint.storage.file_systems import is_uri
from headrace.connectors.dataframe.batch_log import (
    BATCH_LOG_FORMAT,
    BATCHES_MAX,
    BATCHES_MAX_DEFAULT,
    BatchGoneError,
    BatchLog,
    BatchLogError,
    LoggedFile,
    count_of_option,
)
from headrace.connectors.files.paths import fixed_place
from headrace.spark.dataframes.log_writer import FedJob, LogStreamWriter
from headrace.state_processor.stored_state import converted

_ROWS_MAX: Final = "maxRowsPerTrigger"
_OF_READERS: Final = (_ROWS_MAX, "cleanSource")
_OF_WRITERS: Final = (BATCHES_MAX, "job", "cluster", "checkpointLocation", "queryName")
_OPTIONS: Final = ("path", *_OF_READERS, *_OF_WRITERS)
_DELETE, _OFF = "delete", "off"
_OFFSET: Final = "batch"
_ARTIFACTS: Final = "SPARK_JOB_ARTIFACT_UUID"
"""Variable that names the folder of a Connect session's files in which Spark's Python code works; `default`: no folder.

Source: Spark, PythonWorkerFactory.
"""


class WritingJobFailedError(BatchLogError):
    """The job that writes the log has failed, and the query has read all its rows."""


class HeadraceSource(datasource.DataSource):
    """Data source of logs of batches: reads one from a DataFrameSink `headrace`, or writes one for a BatchLogSource.

    `path`: the log's folder; as for Spark's own formats, relative to the driver's working directory, but on Spark
    Connect absolute. `maxRowsPerTrigger`: approximate maximum of rows in a micro-batch, as batches stay whole.
    `cleanSource`: `delete` (the default) deletes rows once the query has committed them, `off` leaves them. For a query
    that writes: `maxBatches` (10,000), the maximum of waiting batches; `job`, the id or name of the job that reads
    them, which must be running on the `cluster` (`host:port` or a URL; without it, the user's only cluster).
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        chosen = _chosen(options)
        self.log: Final = BatchLog(_place_of(chosen["path"]))
        said = chosen.get(_ROWS_MAX)
        self.row_count_max: Final = (
            None if said is None else count_of_option(_ROWS_MAX, said, BatchLogError)
        )
        self.deletes: Final = chosen.get("cleanSource", _DELETE).lower() == _DELETE
        self._chosen: Final = chosen

    @classmethod
    def name(cls) -> str:
        return BATCH_LOG_FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(self.log.schema(), prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> "LogReader":
        return LogReader(self, schema)

    def streamReader(self, schema: StructType) -> "LogStreamReader":
        return LogStreamReader(self, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogStreamWriter:
        """Return the writer of a query. BatchLogError; ReadingJobGoneError or RestError if its job is not running."""
        if overwrite:
            raise BatchLogError(
                f"a log of batches can only be appended to, but the query's output mode is complete: write "
                f"{self.log.path} in output mode append or update"
            )
        chosen = self._chosen
        count_max = count_of_option(
            BATCHES_MAX, chosen.get(BATCHES_MAX, str(BATCHES_MAX_DEFAULT)), BatchLogError
        )
        job = FedJob(chosen["job"], chosen.get("cluster")) if "job" in chosen else None
        return LogStreamWriter(self.log, schema, count_max, job)


class LogPartition(datasource.InputPartition):
    """One file of a batch."""

    def __init__(self, path: str, number: int, file: LoggedFile) -> None:
        super().__init__(None)
        self.path = path
        self.number = number
        self.file = file


class LogReader(datasource.DataSourceReader):
    """Reads the batches that exist when a query is planned, and deletes none."""

    def __init__(self, source: HeadraceSource, schema: StructType) -> None:
        self._log = source.log
        self._schema = schema

    def partitions(self) -> Sequence[datasource.InputPartition]:
        return _partitions(self._log, self._log.first_number - 1, self._log.last_number)

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(partition, self._schema)


class LogStreamReader(datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads batches in order. An offset is the number of the last batch that was read."""

    def __init__(self, source: HeadraceSource, schema: StructType) -> None:
        self._log = source.log
        self._row_count_max = source.row_count_max
        self._deletes = source.deletes
        self._schema = schema
        self._last_wanted: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {_OFFSET: self._log.first_number - 1}

    def getDefaultReadLimit(self) -> ReadLimit:
        count = self._row_count_max
        return ReadAllAvailable() if count is None else ReadMaxRows(count)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last_wanted = self._log.last_number

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the offset up to which to read. BatchGoneError if a batch was deleted; WritingJobFailedError."""
        begin, last = start[_OFFSET], self._log.last_number
        if last != begin:
            self._log.check_start(begin)
        if self._last_wanted is not None:
            last = max(begin, min(last, self._last_wanted))
        elif last == begin:
            self._tell_failure()
        if isinstance(limit, ReadMaxRows):
            last = self._limited(begin, last, limit.max_rows)
        return {_OFFSET: last}

    def reportLatestOffset(self) -> dict[str, int]:
        return {_OFFSET: self._log.last_number}

    def partitions(
        self, start: dict[str, int], end: dict[str, int]
    ) -> Sequence[datasource.InputPartition]:
        return _partitions(self._log, start[_OFFSET], end[_OFFSET])

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(partition, self._schema)

    def commit(self, end: dict[str, int]) -> None:
        """Delete batches that the query has committed, as it never reads them again."""
        if self._deletes:
            self._log.delete_up_to(end[_OFFSET])

    def stop(self) -> None:
        """Do nothing: the job that writes the log continues."""

    def _limited(self, start: int, end: int, row_count_max: int) -> int:
        """Return the last batch that stays within the limit of rows, but at least the first one."""
        number, row_count = start, 0
        for batch in self._log.batches(start, end):
            row_count += batch.row_count
            if number > start and row_count > row_count_max:
                break
            number = batch.number
        return number

    def _tell_failure(self) -> None:
        failure = self._log.failure()
        if failure is not None:
            raise WritingJobFailedError(
                f"{failure.partition(chr(10))[0]}: the job that writes the log {self._log.path} has failed, and all "
                "its rows are read. Start it again from its last checkpoint, then the query from its checkpointLocation"
            )


def _place_of(path: str) -> str:
    """Return the folder of a log. BatchLogError for a relative path that would lie in a folder of one session."""
    is_relative = not (is_uri(path) or os.path.isabs(path))
    if is_relative and os.environ.get(_ARTIFACTS, "default") != "default":
        raise BatchLogError(
            f"'{path}' is a relative path, and on Spark Connect it would lie in {os.getcwd()}, which ends with the "
            "session: use an absolute path that the server sees, or a URI"
        )
    return fixed_place(path)


def _partitions(log: BatchLog, start: int, end: int) -> list[datasource.InputPartition]:
    return [
        LogPartition(log.path, batch.number, file)
        for batch in log.batches(start, end)
        for file in batch.files
    ]


def _rows(partition: datasource.InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, LogPartition):
        return  # Spark makes one up where there is nothing to read
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    file_system, path = BatchLog(partition.path).file_path(partition.file)
    try:
        content: Any = pq.ParquetFile(path, filesystem=file_system)
    except FileNotFoundError as error:
        raise BatchGoneError(
            f"{path}, with rows of batch {partition.number} of the log {partition.path}, is gone: another query, or "
            f"a user, has deleted it. Let only one query read a log, or set cleanSource=off for the others"
        ) from error
    with content:
        for batch in content.iter_batches():
            columns = [converted(batch.column(one.name), one.type) for one in arrow_schema]
            yield pa.RecordBatch.from_arrays(columns, schema=arrow_schema)


def _chosen(options: Mapping[str, str]) -> dict[str, str]:
    """Return options under their declared names, as Spark passes them in lower case.

    BatchLogError for an unknown one.
    """
    names = {name.lower(): name for name in _OPTIONS}
    unknown = sorted(name for name in options if name.lower() not in names)
    if unknown:
        raise BatchLogError(
            f"{BATCH_LOG_FORMAT} has no option '{unknown[0]}': its options are {', '.join(_OPTIONS)}"
        )
    chosen = {names[name.lower()]: value for name, value in options.items()}
    if "path" not in chosen:
        raise BatchLogError(
            f"{BATCH_LOG_FORMAT} needs the option 'path', the folder of a log: call load(path)"
        )
    if chosen.get("cleanSource", _DELETE).lower() not in (_DELETE, _OFF):
        raise BatchLogError(
            f"cleanSource is '{chosen['cleanSource']}': it must be '{_DELETE}' or '{_OFF}'"
        )
    return chosen
