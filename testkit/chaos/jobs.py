"""What every job of the chaos suite has: a program, and its answer, which plain Python computes without the engine."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final, Protocol

from headrace.api.environment import StreamExecutionEnvironment
from headrace.connectors.files.sink.buckets import BucketAssigner, RollingPolicy
from headrace.connectors.files.sink.file_sink import FileSink
from headrace.core.types.type_info import Types
from headrace.functions.serialization import Encoder
from testkit.chaos.planted_bugs import plant_from_environment

# Whoever loads a job, driver or worker, is to have the bug.
plant_from_environment()

ROW_TYPE: Final = Types.STRING()
OUTPUT: Final = "output"
"""Folder of a run with what the job commits: files of lines, each of which is there once."""


class ChaosJob(Protocol):
    """A frozen dataclass. `count` records come at `rows_per_second`; `name` is for people."""

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
        """The answer: every row once, in any order."""
        ...

    def place_of(self, row: str) -> tuple[Hashable, Any] | None:
        """The key of a row of the answer and its position there, ascending within a file; None where it has none."""
        ...


def output_files(folder: Path) -> FileSink:
    """A sink that leaves a visible file for each subtask and checkpoint."""
    return (
        FileSink.for_row_format(str(folder), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )
