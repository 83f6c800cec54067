"""The commit of a DataFrame sink, without Spark: what it reads stays until it has ended, whoever closes meanwhile."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.connectors.dataframe.messages import FilesStaged, FunctionPayload, SinkPayload
from headrace.connectors.dataframe.staging import batch_staging_folder
from headrace.core.config import Settings
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    JobId,
    JobVertexId,
    OperatorId,
)
from headrace.spark.dataframes.sink_coordinator import SinkCommitError, SinkCoordinator

JOB = JobId(b"j" * 16)
ATTEMPT = ExecutionAttemptId(JOB, ExecutionVertexId(JobVertexId(b"v" * 16), 0), 0)


class HeldSpark:
    """A session that comes only when it is let go, and then fails; notes whether staged files were still there."""

    def __init__(self, staging: Path) -> None:
        self.staging = staging
        self.was_asked = threading.Event()
        self.may_go_on = threading.Event()
        self.saw_files: bool | None = None

    def __call__(self) -> Any:
        self.was_asked.set()
        assert self.may_go_on.wait(10)
        self.saw_files = (self.staging / "part-0.parquet").exists()
        raise RuntimeError("no session")


def new_context(settings: Settings) -> CoordinatorContext:
    return CoordinatorContext(
        JOB,
        OperatorId(b"o" * 16),
        "results",
        1,
        settings,
        lambda *_: None,
        lambda _: None,
        lambda _: None,
    )


def staged_coordinator(staging: Path, spark: HeldSpark) -> SinkCoordinator:
    """One whose only subtask has staged a file."""
    payload = SinkPayload("out", "parquet", "error", {}, str(staging))
    coordinator = SinkCoordinator(new_context(Settings()), payload, spark)
    staging.mkdir()
    file = staging / "part-0.parquet"
    file.touch()
    coordinator.handle_event(
        ATTEMPT, msgspec.msgpack.encode(FilesStaged(0, 0, (str(file),), row_count=1))
    )
    return coordinator


async def begin(coordinator: SinkCoordinator, spark: HeldSpark) -> asyncio.Future[None]:
    """Let the commit run until it holds."""
    commit = asyncio.ensure_future(coordinator.job_finishing())
    await asyncio.get_running_loop().run_in_executor(None, spark.was_asked.wait, 10)
    return commit


def test_closing_waits_for_a_running_commit_before_it_removes_what_is_staged(
    tmp_path: Path,
) -> None:
    spark = HeldSpark(tmp_path / "staging")
    coordinator = staged_coordinator(spark.staging, spark)

    async def close_meanwhile() -> None:
        commit = await begin(coordinator, spark)
        closing = asyncio.ensure_future(coordinator.close())
        done, _ = await asyncio.wait([closing], timeout=0.02)
        assert not done
        spark.may_go_on.set()
        await closing
        with pytest.raises(SinkCommitError, match="no session"):
            await commit

    asyncio.run(close_meanwhile())
    assert spark.saw_files
    assert not spark.staging.exists()


def test_closing_waits_for_the_commit_also_when_nobody_awaits_it_any_more(tmp_path: Path) -> None:
    spark = HeldSpark(tmp_path / "staging")
    coordinator = staged_coordinator(spark.staging, spark)

    async def abandon_and_close() -> None:
        commit = await begin(coordinator, spark)
        commit.cancel()
        await asyncio.wait([commit])
        closing = asyncio.ensure_future(coordinator.close())
        await asyncio.sleep(0)
        spark.may_go_on.set()
        await closing

    asyncio.run(abandon_and_close())
    assert spark.saw_files
    assert not spark.staging.exists()


@pytest.mark.parametrize("outlives_driver", [False, True])
def test_rows_of_checkpoints_are_left_only_where_the_checkpoints_are(
    tmp_path: Path, outlives_driver: bool
) -> None:
    values = {"execution.checkpointing.interval": "1 s"}
    if outlives_driver:
        values["execution.checkpointing.dir"] = str(tmp_path / "checkpoints")
    settings, payload = Settings(values), FunctionPayload("f", "", str(tmp_path / "temporary"))
    staging = Path(batch_staging_folder(payload, settings).removeprefix("file:"))
    (staging / "rows").mkdir(parents=True)
    coordinator = SinkCoordinator(new_context(settings), payload, HeldSpark(staging))
    coordinator.start()
    asyncio.run(coordinator.close())
    assert staging.exists() is outlives_driver
