"""Output that a job leaves uncommitted if its tasks may finish without a last checkpoint, and the warning of it."""

from pathlib import Path
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types
from headrace.common import Encoder
from headrace.datastream.connectors.file_system import FileSink
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.exactly_once import lines_of_files

pytestmark = pytest.mark.integration

AFTER_TASKS_FINISH = "execution.checkpointing.checkpoints-after-tasks-finish"
STRING: Any = Types.STRING()


def run(output: Path, settings: dict[str, str]) -> None:
    """Write three lines to files, in a job whose first periodic checkpoint would come in an hour at the earliest."""
    pause = {"execution.checkpointing.min-pause": "1 h"}
    with MiniClusterExecutor(slot_count=1):
        env = StreamExecutionEnvironment.get_execution_environment({**pause, **settings})
        lines = env.set_parallelism(1).from_collection(["a", "b", "c"], STRING)
        files = FileSink.for_row_format(str(output), Encoder.simple_string_encoder()).build()
        lines.sink_to(files).name("files")
        env.execute("ending")


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if AFTER_TASKS_FINISH in text]


def test_a_job_without_a_last_checkpoint_says_whose_output_will_not_be_committed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, {"execution.checkpointing.interval": "1 h", AFTER_TASKS_FINISH: "false"})
    assert lines_of_files(tmp_path) == {}
    (warning,) = warnings_of(caplog)
    assert "output of 'Sink: files' since the last checkpoint will not be committed" in warning


@pytest.mark.parametrize(
    "settings",
    [{"execution.checkpointing.interval": "1 h"}, {AFTER_TASKS_FINISH: "false"}],
    ids=["with a last checkpoint", "without any checkpoints"],
)
def test_a_job_that_commits_all_it_wrote_says_nothing_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: dict[str, str]
) -> None:
    run(tmp_path, settings)
    assert [*lines_of_files(tmp_path).values()] == [["a", "b", "c"]]
    assert warnings_of(caplog) == []
