"""Messages between the coordinators of DataFrame sources and sinks and their subtasks."""

import msgspec

SOURCE_COORDINATOR = "dataframe-source"
SINK_COORDINATOR = "dataframe-sink"
LOG_COORDINATOR = "batch-log-sink"
"""Coordinator of a sink that writes a log of batches: it needs no Spark, so any cluster may run the job."""
SINK_COMMITTER = "dataframe"


class SourcePayload(msgspec.Struct, frozen=True):
    """Configuration of the source's coordinator: the name of a DataFrame in the driver's registry."""

    dataframe_id: str


class PartitionPosition(msgspec.Struct, frozen=True, array_like=True):
    """A split of a DataFrame source, with its position: `row_count` rows of the partition have been emitted."""

    partition: int
    row_count: int


class ReaderOpened(msgspec.Struct, frozen=True, array_like=True, tag="opened"):
    """Reader → coordinator, before anything else: the unfinished partitions of the state that it starts from."""

    positions: tuple[PartitionPosition, ...]


class PartitionEnded(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """Reader → coordinator: every row of the partition has been emitted."""

    partition: int


class PartitionsAnnounced(msgspec.Struct, frozen=True):
    """Coordinator → reader: all partitions assigned to this reader, in place of earlier ones.

    A streaming DataFrame has a `number` for each of its micro-batches, whose partitions are counted from
    `first_partition` on; `is_last`: True if no announcement follows.
    """

    partitions: tuple[int, ...]
    number: int = 0
    first_partition: int = 0
    is_last: bool = True


ReaderEvent = ReaderOpened | PartitionEnded


class SourceState(msgspec.Struct, frozen=True):
    """State of the source's coordinator in a checkpoint.

    `is_announced`: True if partitions had been assigned to readers, whose states then hold them. `plan`: an identifier
    of the plan that computes the DataFrame, with `parallelism` as Spark's default number of partitions. `copy_path`:
    the folder with a copy of the rows for reading them again; empty if the plan gives the same rows in the same order
    each time.
    """

    is_announced: bool
    plan: str
    parallelism: int
    copy_path: str


class StreamState(msgspec.Struct, frozen=True):
    """State of a streaming DataFrame's coordinator in a checkpoint.

    `batch_id`: the newest micro-batch, -1 before the first. Its partitions have the numbers from `first_partition` on;
    if `is_announced`, the readers' states hold those that have not ended. `parallelism`: Spark's default number of
    partitions for a copy. `query_path`: the `checkpointLocation` of the query.
    """

    batch_id: int = -1
    first_partition: int = 0
    partition_count: int = 0
    is_announced: bool = False
    parallelism: int = 0
    query_path: str = ""


class SinkPayload(msgspec.Struct, frozen=True, tag="write"):
    """Configuration of the sink's coordinator; fields as in DataFrameSink."""

    path: str
    format: str
    mode: str
    options: dict[str, str]
    staging_directory: str


class FunctionPayload(msgspec.Struct, frozen=True, tag="function"):
    """Configuration of a sink that calls a function: its name in the driver, and the folders of staged rows.

    `staging_path`: the folder that the user has named, or empty. `temporary`: a folder among the driver's temporary
    files.
    """

    function_id: str = ""
    staging_path: str = ""
    temporary: str = ""


class FilesStaged(msgspec.Struct, frozen=True):
    """Writer → coordinator: this subtask has written its last row. `paths` are complete Parquet files."""

    subtask_index: int
    attempt_number: int
    paths: tuple[str, ...]
    row_count: int


class StagedPart(msgspec.Struct, frozen=True):
    """Writer → committer: a complete Parquet file. `path`: a path or a URI, in the form that the writer received."""

    path: str
    row_count: int
    subtask_index: int
    attempt_number: int


class CommitPayload(msgspec.Struct, frozen=True):
    """Configuration of the committer: a target as in DataFrameSink, or a function of the driver.

    `is_at_least_once`: the program has declared that it tolerates rows that are written twice. `staging_directory`: the
    sink's own folder for rows that wait for a log of batches.
    """

    path: str = ""
    format: str = ""
    mode: str = ""
    options: dict[str, str] = {}
    is_at_least_once: bool = False
    function: FunctionPayload | None = None
    staging_directory: str = ""
