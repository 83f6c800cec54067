"""Interface of the chaos suite's jobs: a program, and its output computed in plain Python, without the engine."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final, Protocol

from headrace.api.environment import StreamExecutionEnvironment
from headrace.connectors.files.sink.buckets import BucketAssigner, RollingPolicy
from headrace.connectors.files.sink.file_sink import FileSink
from headrace.core.types.type_info import Types
from headrace.functions.serialization import Encoder
from testkit.chaos.planted_bugs import plant_from_environment

# Every process that loads a job, driver or worker, must have the bug.
plant_from_environment()

ROW_TYPE: Final = Types.STRING()
OUTPUT: Final = "output"
"""Folder of a run with the job's committed output: files of lines, each of which occurs once."""


class ChaosJob(Protocol):
    """A job; implementations are frozen dataclasses.

    `count` records come at `rows_per_second`; `name` is for reports.
    """

    @property
    def name(self) -> str: ...

    @property
    def count(self) -> int: ...

    @property
    def rows_per_second(self) -> float: ...

    @property
    def parallelism(self) -> int: ...

    def build(self, env: StreamExecutionEnvironment, directory: Path) -> None:
        """Add the job to an environment; its folders lie in `directory`."""
        ...

    def expected_rows(self) -> list[str]:
        """Return the answer: every row once, in any order."""
        ...

    def place_of(self, row: str) -> tuple[Hashable, Any] | None:
        """Return a row's key and its position among that key's rows, ascending within a file; None if it has none."""
        ...


def output_files(folder: Path) -> FileSink:
    """Return a sink that leaves a visible file for each subtask and checkpoint."""
    return (
        FileSink.for_row_format(str(folder), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )
