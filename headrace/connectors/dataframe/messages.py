"""What the coordinators of DataFrame sources and sinks and their subtasks say to each other."""

import msgspec

SOURCE_COORDINATOR = "dataframe-source"
SINK_COORDINATOR = "dataframe-sink"
SINK_COMMITTER = "dataframe"


class SourcePayload(msgspec.Struct, frozen=True):
    """What the source's coordinator is made from: the name of a DataFrame in the driver's registry."""

    dataframe_id: str


class PartitionsAnnounced(msgspec.Struct, frozen=True):
    """Coordinator → reader: the DataFrame has `partition_count` partitions; i goes to subtask i modulo parallelism."""

    partition_count: int


class SinkPayload(msgspec.Struct, frozen=True):
    """What the sink's coordinator is made from; fields as in DataFrameSink."""

    path: str
    format: str
    mode: str
    options: dict[str, str]
    staging_directory: str


class FilesStaged(msgspec.Struct, frozen=True):
    """Writer → coordinator: this subtask has written its last row. `paths` are complete Parquet files."""

    subtask_index: int
    attempt_number: int
    paths: tuple[str, ...]
    row_count: int


class StagedPart(msgspec.Struct, frozen=True):
    """Writer → committer: a complete Parquet file. `path`: as the writer was given it, so a URI stays one."""

    path: str
    row_count: int
    subtask_index: int
    attempt_number: int


class CommitPayload(msgspec.Struct, frozen=True):
    """What the committer is made from: a target as in DataFrameSink, or the name of a function in the driver.

    `is_at_least_once`: the program has said that it bears rows that are written twice.
    """

    path: str = ""
    format: str = ""
    mode: str = ""
    options: dict[str, str] = {}
    is_at_least_once: bool = False
    function_id: str = ""
