"""Writes the micro-batches of a query to a log of batches, from which a job reads them.

Each task writes its rows to a file of its own below the log. When all have finished, the files become the log's next
batch, under the ids of query and micro-batch, so that a micro-batch that Spark reruns changes nothing. The rows of a
rerun task may differ: nothing is read until the micro-batch is complete.

All of this runs in Spark's Python workers: `write` in tasks, the rest in a worker on the driver's host.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.checkpoint.storage.file_systems import make_folder
from headrace.connectors.dataframe.batch_log import BatchLog, BatchLogError, BatchLogFullError
from headrace.connectors.dataframe.messages import StagedPart
from headrace.connectors.files.paths import file_system_of
from headrace.core.errors import ProgramError
from headrace.core.randomness import system_random
from headrace.core.types.arrow_types import data_schema, type_info_from_schema
from headrace.functions.sources.dataframe_columns import check_dataframe_schema, conform
from headrace.rest.client import RestClient, path_of
from headrace.rest.home.connections import find_connection

_QUERY_ID: Final = "sql.streaming.queryId"
"""Local property of a micro-batch's tasks. Source: Spark, StreamExecution.QUERY_ID_KEY."""
_STAGED: Final = "_staged"
_ROOM_LOOKS_MAX: Final = 600
_LOOK_S: Final = 1.0
_ENDED: Final = frozenset({"FINISHED", "CANCELED", "CANCELLING", "FAILED", "FAILING"})
_KINDS: Final = (pa.types.is_timestamp, pa.types.is_integer, pa.types.is_floating)
_IGNORED: Final = lambda _: None  # noqa: E731


class ReadingJobGoneError(BatchLogError):
    """The job that reads a query's log has ended or does not exist, so that nobody would read the rows."""


class FedJob:
    """The job that reads a query's log: its id or name, on the given cluster or on the user's only one."""

    def __init__(self, job: str, cluster: str | None) -> None:
        self._job: Final = job
        self._cluster: Final = cluster

    def check(self) -> None:
        """Raise ReadingJobGoneError if the job does not run; RestError if no cluster is found or answers."""
        found = find_connection(self._cluster, _IGNORED)
        jobs: list[dict[str, Any]] = RestClient.of(found).get_object(path_of("jobs", "overview"))[
            "jobs"
        ]
        ours = [one for one in jobs if self._job in (one["jid"], one["name"])]
        address = found.connection.address
        if not ours:
            raise ReadingJobGoneError(
                f"the cluster at {address} has no job '{self._job}' for the query's rows: start it, or set the "
                f"option job to the id or name of another one"
            )
        if any(one["state"] not in _ENDED for one in ours):
            return
        newest = max(ours, key=lambda one: int(one["start-time"]))
        raise ReadingJobGoneError(
            f"job '{newest['name']}' ({newest['jid']}) at {address} is {newest['state']}, so nobody would read the "
            f"query's rows: restart it from its last checkpoint or savepoint with the same log, then the query from "
            "its checkpointLocation"
        )


class _RowsStaged(datasource.WriterCommitMessage):
    """Commit message of a task that has written its rows."""

    def __init__(self, query_id: str, part: StagedPart | None) -> None:
        self.query_id = query_id
        self.part = part


class LogStreamWriter(datasource.DataSourceStreamArrowWriter):
    """Appends a query's micro-batches to the log.

    `batch_count_max`: limit of waiting batches, at which the query waits.
    """

    def __init__(
        self, log: BatchLog, schema: StructType, batch_count_max: int, job: FedJob | None
    ) -> None:
        self._log = log
        self._batch_count_max = batch_count_max
        self._job = job
        try:
            arrow_schema = to_arrow_schema(schema, timezone="UTC")
            check_dataframe_schema(arrow_schema, None)
            self._schema = data_schema(type_info_from_schema(arrow_schema))
        except TypeError as error:
            raise ProgramError(f"the query's rows cannot be a stream: {error}") from error
        if job is not None:
            job.check()
        self._schema = self._declared()

    def _declared(self) -> pa.Schema:
        """Return the columns of the log; a new log gets those of the query. BatchLogError."""
        known = self._log.known_schema()
        if known is None or not _fits(self._schema, known):
            self._log.declare(self._schema)
            return self._schema
        return known

    def write(self, iterator: Iterator[Any]) -> _RowsStaged:
        context = TaskContext.get()
        assert context is not None
        query_id = context.getLocalProperty(_QUERY_ID) or ""
        folder, writer, row_count = self._folder(query_id), None, 0
        partition, attempt = context.partitionId(), context.attemptNumber()
        token = system_random().randbytes(8).hex()
        path = f"{folder}/part-{partition:05d}-{attempt}-{token}.parquet"
        try:
            for batch in iterator:
                if not batch.num_rows:
                    continue
                if writer is None:
                    make_folder(folder)
                    file_system, place = file_system_of(path)
                    writer = pq.ParquetWriter(
                        place, self._schema, filesystem=file_system, compression="zstd"
                    )
                writer.write_batch(conform(batch, self._schema))
                row_count += batch.num_rows
        finally:
            if writer is not None:
                writer.close()
        part = StagedPart(path, row_count, partition, attempt) if row_count else None
        return _RowsStaged(query_id, part)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """Append a micro-batch, once there is room.

        BatchLogFullError, ReadingJobGoneError, RestError or OSError if it cannot.
        """
        staged = [one for one in messages if isinstance(one, _RowsStaged)]
        parts = [one.part for one in staged if one.part is not None]
        if not parts:
            return
        # Micro-batches are counted from 0, and checkpoints, which logs are made for, from 1.
        scope, number = staged[0].query_id, batchId + 1
        if number > (self._log.last_id(scope) or 0):
            self._append(scope, number, parts)
        self._delete_staged(scope)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        for one in messages:
            if isinstance(one, _RowsStaged):
                self._delete_staged(one.query_id)

    def _append(self, scope: str, number: int, parts: Sequence[StagedPart]) -> None:
        for look in range(_ROOM_LOOKS_MAX):
            try:
                self._log.append(scope, number, parts, self._batch_count_max)
                return
            except BatchLogFullError:
                if look == _ROOM_LOOKS_MAX - 1:
                    raise
            if self._job is not None:
                self._job.check()
            threading.Event().wait(_LOOK_S)

    def _folder(self, query_id: str) -> str:
        return f"{self._log.path}/{_STAGED}/{query_id}"

    def _delete_staged(self, query_id: str) -> None:
        """Delete the files that the query has staged and not appended; only one micro-batch is written at a time."""
        file_system, place = file_system_of(self._folder(query_id))
        try:
            file_system.delete_dir(place)
        except FileNotFoundError:
            return


def _fits(given: pa.Schema, known: pa.Schema) -> bool:
    """Return whether rows can be cast without a change of their meaning: numbers to numbers, times to times."""
    return given.names == known.names and all(
        one.type == other.type
        or any(is_kind(one.type) and is_kind(other.type) for is_kind in _KINDS)
        for one, other in zip(given, known, strict=True)
    )
