"""DataFrameSink: results written by any Spark writer, once, when the whole job has finished.

Each subtask stages Parquet files beside the target; the coordinator in the driver reads the complete ones as a
DataFrame and writes that to the target. A job that fails leaves neither output nor staged files.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from headrace.connectors.dataframe.messages import SINK_COORDINATOR, FilesStaged, SinkPayload
from headrace.connectors.files.formats import ROW_GROUP_ROW_COUNT
from headrace.connectors.files.paths import file_system_of
from headrace.core.errors import ProgramError
from headrace.core.randomness import system_random
from headrace.core.record_batch import RecordBatch
from headrace.core.types.arrow_types import data_schema
from headrace.core.types.type_info import PickledBytesTypeInfo, TypeInformation
from headrace.functions.sink import Sink, SinkWriter
from headrace.functions.subtask_context import SubtaskContext

MODES: Final = ("append", "overwrite", "error", "errorifexists", "ignore")
_MODES_FOR_NEW_PATHS: Final = ("error", "errorifexists")


@dataclass(frozen=True)
class DataFrameSink(Sink):
    """Writes records to `path` in one of Spark's formats, as `df.write.format(…).mode(…).options(…).save(path)`.

    Records must have columns: rows, tuples, dataclasses or basic types, not undeclared objects.

    Example:
        >>> sink = DataFrameSink("out/hours", mode="overwrite", options={"compression": "zstd"})
        >>> sink.format
        'parquet'
    """

    path: str | Path
    format: str = "parquet"
    mode: str = "errorifexists"
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    staging_name: str = field(default_factory=lambda: f"{system_random().getrandbits(64):016x}")

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ProgramError(
                f"DataFrameSink cannot write in mode '{self.mode}': there are {', '.join(MODES)}"
            )
        if "://" not in str(self.path):
            # A relative path means the program's working directory, wherever the workers have theirs.
            object.__setattr__(self, "path", Path(self.path).absolute())

    @property
    def target(self) -> str:
        """The path as Spark is given it: a URI, or an absolute path."""
        return str(self.path)

    @property
    def staging_directory(self) -> str:
        """Beside the target, so that it lies on the same store, under a name that Spark's readers pass over."""
        parent, _, name = self.target.rstrip("/").rpartition("/")
        return f"{parent}/.{name}.staging-{self.staging_name}"

    def check_input(self, value_type: TypeInformation) -> None:
        """See Sink."""
        if isinstance(value_type, PickledBytesTypeInfo):
            raise ProgramError(
                "DataFrameSink needs records with columns, and this stream's records have no declared type: give it "
                "one, for example map(f, output_type=Types.ROW_NAMED([...], [...]))"
            )

    def check_target(self) -> None:
        """See Sink. Spark looks again when it writes."""
        file_system, place = file_system_of(self.target)
        does_exist = file_system.get_file_info(place).type is not fs.FileType.NotFound
        if does_exist and self.mode in _MODES_FOR_NEW_PATHS:
            raise ProgramError(
                f"DataFrameSink cannot write to {self.target}, which exists: remove it, or say mode='overwrite', "
                "'append' or 'ignore'"
            )
        if isinstance(file_system, fs.LocalFileSystem):
            _check_writable(Path(place).parent, self.target)

    def create_writer(self, context: SubtaskContext) -> SinkWriter:
        return StagingWriter(self.staging_directory, context)

    def coordinator(self) -> tuple[str, bytes]:
        payload = SinkPayload(
            self.target,
            self.format,
            self.mode,
            {key: str(value) for key, value in self.options.items()},
            self.staging_directory,
        )
        return SINK_COORDINATOR, msgspec.msgpack.encode(payload)


class StagingWriter(SinkWriter):
    """Writes one Parquet file per subtask and attempt; tells the coordinator of it when it is complete."""

    def __init__(self, staging_directory: str, context: SubtaskContext) -> None:
        self._context = context
        self._schema = data_schema(context.types.inputs[0].value_type)
        self._filesystem, directory = file_system_of(staging_directory)
        self._filesystem.create_dir(directory, recursive=True)
        name = f"part-{context.subtask_index:05d}-{context.attempt_number}.parquet"
        self._path = f"{directory}/{name}"
        self._reported_path = f"{staging_directory}/{name}"
        self._writer: Any = None
        self._held: list[pa.RecordBatch] = []
        self._held_row_count = 0
        self._row_count = 0

    def write_batch(self, batch: RecordBatch) -> None:
        self._held.append(batch.columns())
        self._held_row_count += batch.num_rows
        if self._held_row_count >= ROW_GROUP_ROW_COUNT:
            self._write_held()

    def flush(self, end_of_input: bool) -> None:
        if not end_of_input:
            return
        # A subtask without rows writes an empty file: somebody has to tell Spark the schema.
        self._write_held()
        self._close_file()
        staged = FilesStaged(
            self._context.subtask_index,
            self._context.attempt_number,
            (self._reported_path,),
            self._row_count,
        )
        self._context.send_event(msgspec.msgpack.encode(staged))

    def close(self) -> None:
        self._held.clear()
        self._close_file()

    def _write_held(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path, self._schema, filesystem=self._filesystem, compression="zstd"
            )
        table = pa.Table.from_batches(
            [batch.select(self._schema.names).cast(self._schema) for batch in self._held],
            schema=self._schema,
        )
        self._writer.write_table(table)
        self._row_count += self._held_row_count
        self._held.clear()
        self._held_row_count = 0

    def _close_file(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def _check_writable(folder: Path, target: str) -> None:
    """Raise ProgramError unless `folder` is one in which we may write, or may become one."""
    existing = next(one for one in (folder, *folder.parents) if one.exists())
    if not existing.is_dir():
        raise ProgramError(f"DataFrameSink cannot write to {target}: {existing} is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ProgramError(
            f"DataFrameSink cannot write to {target}: this user may not write in {existing}"
        )
