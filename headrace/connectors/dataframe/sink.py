"""Sinks written by Spark: each subtask stages Parquet files, which the driver reads as a DataFrame and writes.

With checkpoints the driver writes at each of them. Without checkpoints it writes once, when the whole job has finished;
a job that fails before leaves neither output nor staged files. A sink that calls a function with each DataFrame refers
to it by name: the registry here keeps the functions of the driver's process, so that the JobMaster's process unpickles
no user code. Column types that Spark's formats cannot store are refused when a sink is made.
"""

import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import pyarrow as pa
from pyarrow import fs

from headrace.checkpoint.options import SHARED_FILES
from headrace.connectors.dataframe.batch_log import (
    BATCH_LOG_FORMAT,
    BATCHES_MAX,
    BATCHES_MAX_DEFAULT,
    BatchLog,
    count_of_option,
)
from headrace.connectors.dataframe.messages import (
    LOG_COORDINATOR,
    SINK_COMMITTER,
    SINK_COORDINATOR,
    CommitPayload,
    FunctionPayload,
    SinkPayload,
)
from headrace.connectors.dataframe.staging import (
    PartStagingWriter,
    StagingWriter,
    batch_staging_folder,
)
from headrace.connectors.files.paths import file_system_of, fixed_place
from headrace.connectors.prepared_output import commits_prepared_output
from headrace.core.errors import ProgramError
from headrace.core.randomness import system_random
from headrace.core.types.arrow_types import data_schema
from headrace.core.types.basic_type_info import CollectionTypeInfo
from headrace.core.types.type_info import (
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.sink import DeliveryGuarantee, Sink, SinkWriter

_DECIMAL_DIGITS_MAX: Final = 38
_LOG: Final = logging.getLogger(__name__)
MODES: Final = ("append", "overwrite", "error", "errorifexists", "ignore")
_MODES_FOR_NEW_PATHS: Final = ("error", "errorifexists")


class BatchId(int):
    """Id of the checkpoint whose rows a function receives: a number that also names the history that it belongs to.

    `lineage`: 32 hexadecimal digits, the same for all batches of a sink from a start without state on, through every
    restart and every start from a checkpoint or savepoint. A start without state has a new lineage, and so has a fork.
    Ids of one lineage grow, and each always stands for the same rows. Delta calls lineage and number `txnAppId` and
    `txnVersion`.

    Example:
        >>> batch = BatchId(7, "5e0c")
        >>> batch > 6, f"{batch} of {batch.lineage}"
        (True, '7 of 5e0c')
    """

    lineage: str

    def __new__(cls, number: int, lineage: str) -> Self:
        made = super().__new__(cls, number)
        made.lineage = lineage
        return made

    @classmethod
    def of_scope(cls, number: int, scope: str) -> Self:
        """Return the id of a commit, from the scope of its idempotence key."""
        return cls(number, hashlib.blake2b(scope.encode(), digest_size=16).hexdigest())

    def __reduce__(self) -> tuple[type[Self], tuple[int, str]]:
        return type(self), (int(self), self.lineage)


BatchFunction = Callable[[Any, BatchId], None]
"""Function of a DataFrame and the id of the checkpoint whose rows the DataFrame has."""


def unwritable_column(value_type: TypeInformation, spark_format: str) -> str | None:
    """Return the part of `value_type` that Spark cannot write in `spark_format`, with a remedy; None if there is none.

    For formats that are not part of Spark, only the limits of all formats are checked. Found by writing every type to
    each.
    """
    schema = data_schema(value_type)
    for column in schema:
        for part in _parts(column.type):
            if pa.types.is_time(part):
                return (
                    f"column '{column.name}' holds a time of day, which Spark cannot read from the staged files: "
                    "convert it to a string or a number of milliseconds"
                )
            if pa.types.is_decimal(part) and part.precision > _DECIMAL_DIGITS_MAX:
                return (
                    f"column '{column.name}' has {part.precision} digits, but Spark's decimals have at most "
                    f"{_DECIMAL_DIGITS_MAX}: declare fewer, or convert it to a string"
                )
    if spark_format.lower() == "csv":
        for column in schema:
            if pa.types.is_nested(column.type):
                return (
                    f"column '{column.name}' is of type {column.type}, but CSV holds only single values: convert it "
                    "to a string, or write parquet, orc or json"
                )
    if spark_format.lower() == "text" and schema.types != [pa.string()]:
        return f"text files hold a single column of strings, not {_listed(schema)}"
    return None


def columns_that_become_strings(value_type: TypeInformation) -> list[str]:
    """Return the names of the columns that hold numbers of any size, for which Spark has no type."""
    if isinstance(value_type, RowTypeInfo | TupleTypeInfo):
        named = zip(value_type.field_names, value_type.field_types, strict=True)
        return [name for name, field_type in named if _is_unbounded(field_type)]
    return list(data_schema(value_type).names) if _is_unbounded(value_type) else []


def _is_unbounded(field_type: TypeInformation) -> bool:
    match field_type:
        case BasicTypeInfo():
            return field_type.basic_type in (BasicType.BIG_INT, BasicType.BIG_DEC)
        case RowTypeInfo() | TupleTypeInfo():
            return any(_is_unbounded(one) for one in field_type.field_types)
        case CollectionTypeInfo():
            return _is_unbounded(field_type.element_type)
        case MapTypeInfo():
            return _is_unbounded(field_type.key_type) or _is_unbounded(field_type.value_type)
        case _:
            return False


def _parts(arrow_type: Any) -> Iterator[Any]:
    yield arrow_type
    for index in range(arrow_type.num_fields):
        yield from _parts(arrow_type.field(index).type)


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"'{column.name}' ({column.type})" for column in schema)


@dataclass
class _Registry:
    functions: dict[str, BatchFunction] = field(default_factory=dict[str, BatchFunction])


_registry: Final = _Registry()


def register_batch_function(function: BatchFunction) -> str:
    """Register the function, and return the name by which this process knows it from now on."""
    function_id = f"batch-function-{system_random().getrandbits(64):016x}"
    _registry.functions[function_id] = function
    return function_id


def batch_function(function_id: str) -> BatchFunction | None:
    """Return the function, or None if this process has not registered it."""
    return _registry.functions.get(function_id)


@dataclass(frozen=True)
class DataFrameSink(Sink):
    """Writes records to `path` in one of Spark's formats, as `df.write.format(…).mode(…).options(…).save(path)`.

    Records must have columns: rows, tuples, dataclasses or basic types, not undeclared objects. A job with checkpoints
    writes with each of them; `mode` applies only to the first time. Each row is written once into folders of files
    (parquet, csv, json, orc, text, avro, xml) and into Delta tables; other targets of Spark do not record what was
    written, so a crash at the wrong moment writes rows twice: `guarantee` must then be AT_LEAST_ONCE.

    The format `headrace` is a log of batches, one for each checkpoint: `spark.readStream.format("headrace")` reads and
    deletes them. Its option `maxBatches` (10,000) limits the batches that wait for a reader; beyond it commits, and so
    the job, wait. The log is written without Spark, so that any cluster may run the job.

    Example:
        >>> sink = DataFrameSink("out/hours", mode="overwrite", options={"compression": "zstd"})
        >>> sink.format
        'parquet'
    """

    path: str | Path
    format: str = "parquet"
    mode: str = "errorifexists"
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE
    staging_name: str = field(default_factory=lambda: f"{system_random().getrandbits(64):016x}")

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ProgramError(
                f"DataFrameSink cannot write in mode '{self.mode}': the modes are {', '.join(MODES)}"
            )
        if self.format == BATCH_LOG_FORMAT:
            _check_log(self.mode, self.options)
        if "://" not in str(self.path):
            # A relative path means the program's working directory, wherever the workers have theirs.
            object.__setattr__(self, "path", Path(self.path).absolute())

    @property
    def target(self) -> str:
        """Return the path that Spark receives: a URI, or an absolute path."""
        return str(self.path)

    @property
    def staging_directory(self) -> str:
        """Return the staging folder next to the target, on the same store, under a name that Spark's readers ignore."""
        parent, _, name = self.target.rstrip("/").rpartition("/")
        return f"{parent}/.{name}.staging-{self.staging_name}"

    def check_input(self, value_type: TypeInformation) -> None:
        _check_columns("DataFrameSink", value_type)
        unwritable = unwritable_column(value_type, self.format)
        if unwritable is not None:
            raise ProgramError(f"DataFrameSink cannot write '{self.format}': {unwritable}")
        _say_what_becomes_strings("DataFrameSink", value_type)

    def check_target(self) -> None:
        """Raise ProgramError if the target exists and the mode forbids that. Spark checks again when it writes."""
        file_system, place = file_system_of(self.target)
        does_exist = file_system.get_file_info(place).type is not fs.FileType.NotFound
        if does_exist and self.mode in _MODES_FOR_NEW_PATHS:
            raise ProgramError(
                f"DataFrameSink cannot write to {self.target}, which exists: remove it, or set mode='overwrite', "
                "'append' or 'ignore'"
            )
        if isinstance(file_system, fs.LocalFileSystem):
            _check_writable(Path(place).parent, self.target)

    def create_writer(self, context: SubtaskContext) -> SinkWriter:
        if self.format == BATCH_LOG_FORMAT and context.subtask_index == 0:
            schema = data_schema(context.types.inputs[0].value_type)
            is_shared = context.settings.get_option(SHARED_FILES)
            BatchLog(self.target).declare(schema, is_shared=is_shared)
        # A log is committed by us in BATCH mode too, where Spark writes what other formats get.
        if commits_prepared_output(context.settings):
            return PartStagingWriter(self.staging_directory, context)
        return StagingWriter(self.staging_directory, context)

    def coordinator(self) -> tuple[str, bytes]:
        payload = SinkPayload(
            self.target,
            self.format,
            self.mode,
            {key: str(value) for key, value in self.options.items()},
            self.staging_directory,
        )
        is_log = self.format == BATCH_LOG_FORMAT
        return LOG_COORDINATOR if is_log else SINK_COORDINATOR, msgspec.msgpack.encode(payload)

    def committer(self) -> tuple[str, bytes]:
        payload = CommitPayload(
            self.target,
            self.format,
            self.mode,
            {key: str(value) for key, value in self.options.items()},
            self.guarantee is not DeliveryGuarantee.EXACTLY_ONCE,
            staging_directory=self.staging_directory if self.format == BATCH_LOG_FORMAT else "",
        )
        return SINK_COMMITTER, msgspec.msgpack.encode(payload)


@dataclass(frozen=True)
class IdempotentForeachBatchSink(Sink):
    """Calls `function(df, checkpoint_id)` in the driver with each checkpoint's rows, like Spark's foreachBatch.

    After a failure the function may be called again with the same id and the same rows: results are exactly once if the
    function makes a second call change nothing. Ids grow, with gaps; their `lineage` tells a continued job from a new
    one (`BatchId`). A job without checkpoints calls the function once, with id 1, when all its tasks have finished.
    `DataStream.foreach_batch` makes this sink.

    `staging_path`: a folder that driver and TaskManagers share, for rows that wait; by default one below
    `execution.checkpointing.dir`, and without that setting, if Spark is local, one among the machine's temporary files.

    Example:
        >>> sink = IdempotentForeachBatchSink(lambda df, checkpoint_id: df.show(), "staging")
        >>> sink.staging_path
        'staging'
    """

    function: BatchFunction = field(repr=False)
    staging_path: str = ""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"the function of a batch must be callable, not {self.function!r}")
        # The function stays in the driver, which calls it; only its name travels.
        path, token = self.staging_path, f"{system_random().getrandbits(64):016x}"
        payload = FunctionPayload(
            register_batch_function(self.function),
            fixed_place(path) if path else "",
            f"{tempfile.gettempdir()}/.foreach-batch.staging-{token}",
        )
        object.__setattr__(self, "payload", payload)

    def __getstate__(self) -> dict[str, Any]:
        payload = self._payload
        return {"staging_path": payload.staging_path, "payload": payload}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)

    def check_input(self, value_type: TypeInformation) -> None:
        _check_columns("foreach_batch", value_type)
        unwritable = unwritable_column(value_type, "parquet")
        if unwritable is not None:
            raise ProgramError(f"foreach_batch cannot make a DataFrame: {unwritable}")
        _say_what_becomes_strings("foreach_batch", value_type)

    def create_writer(self, context: SubtaskContext) -> SinkWriter:
        folder = batch_staging_folder(self._payload, context.settings)
        if commits_prepared_output(context.settings):
            return PartStagingWriter(folder, context)
        return StagingWriter(folder, context)

    def coordinator(self) -> tuple[str, bytes]:
        return SINK_COORDINATOR, msgspec.msgpack.encode(self._payload)

    def committer(self) -> tuple[str, bytes]:
        payload = CommitPayload(function=self._payload)
        return SINK_COMMITTER, msgspec.msgpack.encode(payload)

    @property
    def _payload(self) -> FunctionPayload:
        payload: FunctionPayload = getattr(self, "payload", FunctionPayload())
        return payload


def _check_log(mode: str, options: Mapping[str, str]) -> None:
    if mode not in ("append", *_MODES_FOR_NEW_PATHS):
        raise ProgramError(
            f"a log of batches (format '{BATCH_LOG_FORMAT}') can only be appended to, but mode is '{mode}': set "
            "mode='append', and delete the log to begin a new one"
        )
    unknown = [name for name in options if name != BATCHES_MAX]
    if unknown:
        raise ProgramError(
            f"a log of batches (format '{BATCH_LOG_FORMAT}') has no option '{unknown[0]}': its only option is "
            f"{BATCHES_MAX}"
        )
    batch_count_max(options)


def batch_count_max(options: Mapping[str, str]) -> int:
    """Return the number of batches that may wait in a log. ProgramError if the option is not a valid count."""
    return count_of_option(
        BATCHES_MAX, str(options.get(BATCHES_MAX, BATCHES_MAX_DEFAULT)), ProgramError
    )


def _check_columns(sink_name: str, value_type: TypeInformation) -> None:
    if isinstance(value_type, PickledBytesTypeInfo):
        raise ProgramError(
            f"{sink_name} needs records with columns, and this stream's records have no declared type: give it "
            "one, for example map(f, output_type=Types.ROW_NAMED([...], [...]))"
        )


def _say_what_becomes_strings(sink_name: str, value_type: TypeInformation) -> None:
    names = columns_that_become_strings(value_type)
    if names:
        _LOG.warning(
            "%s writes %s as strings, because BIG_INT and BIG_DEC are unbounded and Spark's decimals have 38 digits; "
            "if those are enough, declare BigDecimalTypeInfo(38, scale), or cast the columns that were written",
            sink_name,
            ", ".join(f"'{name}'" for name in names),
        )


def _check_writable(folder: Path, target: str) -> None:
    """Raise ProgramError unless `folder` is a writable folder, or can be created."""
    existing = next(one for one in (folder, *folder.parents) if one.exists())
    if not existing.is_dir():
        raise ProgramError(f"DataFrameSink cannot write to {target}: {existing} is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ProgramError(
            f"DataFrameSink cannot write to {target}: this user has no permission to write in {existing}"
        )
