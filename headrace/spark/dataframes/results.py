"""Results of jobs as DataFrames of the program's Spark session, after a job's end or while it runs.

A bounded result comes through the driver, batch by batch. A small result becomes a DataFrame in memory; a larger one is
written to Parquet files as it comes, so that the driver never holds more. In BATCH mode Spark's tasks write the files
themselves, and no row comes through the driver. The same holds for a streaming result: it is a log of batches that the
job's subtasks stage and Spark's tasks read. The job may run on another cluster than the session, which may be a session
of Spark Connect.
"""

import atexit
import logging
from contextlib import closing
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.api.client.job_client import JobClient
from headrace.api.executors import runs_elsewhere
from headrace.api.streams.data_stream import DataStream
from headrace.api.transformations import is_bounded
from headrace.checkpoint.options import CHECKPOINT_DIRECTORY, INTERVAL
from headrace.connectors.dataframe.batch_log import BATCH_LOG_FORMAT, BatchLog
from headrace.connectors.dataframe.sink import DataFrameSink, unwritable_column
from headrace.connectors.files.paths import file_system_of, fixed_place
from headrace.connectors.prepared_output import has_checkpoints
from headrace.core.config import Settings
from headrace.core.errors import JobExecutionError, ProgramError
from headrace.core.randomness import system_random
from headrace.core.record_batch import BatchType, columns_of_one_schema
from headrace.core.threads import start_thread
from headrace.core.types.arrow_types import data_schema
from headrace.core.types.type_info import TypeInformation
from headrace.graph.job_graph_generator import runtime_mode_of
from headrace.graph.pipeline_options import RUNTIME_MODE, RuntimeExecutionMode
from headrace.spark.dataframes.dataframe_coordinator import delete_copy, make_folder_of_copies
from headrace.spark.dataframes.push import has_plain_names
from headrace.spark.session import spark_session
from headrace.spark.session.session import is_connect_client, planned_or_running_master
from headrace.task.batch.edge_rows import EdgeRows

_LOG: Final = logging.getLogger(__name__)
_ROWS_AT_ONCE: Final = 65_536


def bounded_dataframe(
    stream: DataStream, value_type: TypeInformation, memory_bytes: int
) -> DataFrame:
    """Run the program to its end and return the stream's records. ProgramError; JobExecutionError if the job fails."""
    schema = _schema_for_spark(value_type)
    environment = stream.get_execution_environment()
    settings = environment.job_settings()
    if _stays_in_spark(environment, value_type, settings):
        folder = _private_place(settings)
        atexit.register(delete_copy, folder)
        stream.sink_to(DataFrameSink(folder, mode="overwrite"))
        environment.execute()
        return spark_session().read.parquet(folder)
    with environment.execute_and_collect_stream(stream, None) as results:
        rows = _Result(schema, settings, memory_bytes)
        with closing(rows):
            while batches := results.take_batches(_ROWS_AT_ONCE):
                rows.add(
                    pa.Table.from_batches(columns_of_one_schema([b.columns() for b in batches]))
                )
    return rows.dataframe(spark_session())


def _stays_in_spark(environment: Any, value_type: TypeInformation, settings: Settings) -> bool:
    """Return whether Spark's tasks can write the records to a place where other tasks find them: in BATCH mode."""
    is_streaming = settings.get_option(RUNTIME_MODE) == RuntimeExecutionMode.STREAMING.name
    if is_streaming or runs_elsewhere(settings):
        return False
    if EdgeRows(BatchType(value_type)).is_pickled or not has_plain_names(
        data_schema(value_type).names
    ):
        return False
    mode = runtime_mode_of(environment.get_stream_graph(), settings)
    return mode is RuntimeExecutionMode.BATCH and _have_hosts_a_folder(settings)


def _have_hosts_a_folder(settings: Settings) -> bool:
    return _master(settings).startswith("local") or bool(settings.get_option(CHECKPOINT_DIRECTORY))


def _master(settings: Settings) -> str:
    """Return the master of the session that reads results, or a placeholder on Spark Connect."""
    if is_connect_client():
        return "behind Spark Connect"
    return planned_or_running_master(settings) or "local"


def streaming_dataframe(
    stream: DataStream, value_type: TypeInformation, path: str | None
) -> DataFrame:
    """Start the program as a job, and return a streaming DataFrame of the rows that its checkpoints commit.

    ProgramError if an unbounded job takes no checkpoints, or if neither `path` nor a folder is set that hosts share.
    """
    schema = _schema_for_spark(value_type)
    environment = stream.get_execution_environment()
    settings = environment.job_settings()
    is_endless = not is_bounded(stream.collected_stream().transformation)
    if is_endless and not has_checkpoints(settings):
        raise ProgramError(
            "a streaming DataFrame has the records of completed checkpoints, but the job takes none: "
            f"set {INTERVAL.key}"
        )
    if path is not None:
        location = fixed_place(path)
    elif not _have_hosts_a_folder(settings):
        raise ProgramError(
            f"a streaming DataFrame is read from a log of batches in a folder that all hosts share, as Spark's "
            f"master is {_master(settings)}: set it as path, or by {CHECKPOINT_DIRECTORY.key}"
        )
    else:
        location = _private_place(settings)
        atexit.register(delete_copy, location)
    log = BatchLog(location)
    log.declare(schema)
    stream.sink_to(DataFrameSink(location, BATCH_LOG_FORMAT, mode="append"))
    client = environment.execute_in_background()
    start_thread(f"failure-of-{client.get_job_id().hex()[:8]}", lambda: _note_failure(client, log))
    return spark_session().readStream.format(BATCH_LOG_FORMAT).load(location)


def _note_failure(client: JobClient, log: BatchLog) -> None:
    """Tell readers of the log when the job fails, as they would wait for rows for ever."""
    error = client.get_job_execution_result().exception()
    if isinstance(error, JobExecutionError):
        try:
            log.mark_failed(str(error).partition("\n")[0])
        except OSError as failure:
            _LOG.warning(
                "readers of %s could not be told that the job failed: %s", log.path, failure
            )


class _Result:
    """The records of a job: a table, or files if they are too many."""

    def __init__(self, schema: pa.Schema, settings: Settings, memory_bytes: int) -> None:
        self._schema: Final = schema
        self._settings: Final = settings
        self._memory_bytes: Final = memory_bytes
        self._tables: list[pa.Table] = []
        self._size_bytes = 0
        self._folder = ""
        self._writer: Any = None

    def add(self, table: pa.Table) -> None:
        """Add records. ProgramError if they are too many for memory, and no folder is set that Spark's hosts share."""
        self._size_bytes += table.nbytes
        self._tables.append(table.cast(self._schema))
        if self._writer is None and self._size_bytes > self._memory_bytes:
            self._begin_files()
        if self._writer is not None:
            for held in self._tables:
                self._writer.write_table(held)
            self._tables.clear()

    def close(self) -> None:
        """Complete the files."""
        if self._writer is not None:
            self._writer.close()

    def dataframe(self, spark: SparkSession) -> DataFrame:
        """Return all records."""
        schema = _spark_schema(self._schema)
        if self._folder:
            return spark.read.schema(schema).parquet(self._folder)
        table = pa.concat_tables([self._schema.empty_table(), *self._tables])
        return spark.createDataFrame(table, schema)

    def _begin_files(self) -> None:
        if not _have_hosts_a_folder(self._settings):
            raise ProgramError(
                f"the result is larger than {self._memory_bytes:,} bytes (memory_bytes), and needs a folder that all "
                f"hosts share, as Spark's master is {_master(self._settings)}: set {CHECKPOINT_DIRECTORY.key}, or "
                f"allow more memory"
            )
        self._folder = _private_place(self._settings)
        atexit.register(delete_copy, self._folder)
        _LOG.info(
            "the result is larger than %s bytes, so it is written to files in %s",
            f"{self._memory_bytes:,}",
            self._folder,
        )
        file_system, place = file_system_of(self._folder)
        file_system.create_dir(place)
        self._writer = pq.ParquetWriter(
            f"{place}/part-00000.parquet", self._schema, filesystem=file_system, compression="zstd"
        )


def _private_place(settings: Settings) -> str:
    return f"{make_folder_of_copies(settings)}/result-{system_random().getrandbits(64):016x}"


def _schema_for_spark(value_type: TypeInformation) -> pa.Schema:
    unwritable = unwritable_column(value_type, "parquet")
    if unwritable is not None:
        raise ProgramError(f"the stream cannot become a DataFrame: {unwritable}")
    return data_schema(value_type)


def _spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)
