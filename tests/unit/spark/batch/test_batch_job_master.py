"""BatchJobMaster: a job whose JobMaster fails commits nothing and fails, or ends with the commits that it began."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from headrace import StreamExecutionEnvironment
from headrace.cluster.dispatcher.job_archive import ArchivedJob
from headrace.core.clock import SystemClock
from headrace.core.ids import JobMasterId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.gateways.dispatcher import JobResult
from headrace.rpc.loopback import LoopbackNetwork
from headrace.spark.batch.batch_host import BatchHost
from headrace.spark.batch.batch_job_master import BatchJobMaster
from headrace.spark.batch.stage_run import StageRun
from tests.unit.api.recording import recording

WAIT_S = 20


def fail() -> None:
    raise LookupError("a bug in the JobMaster")


@pytest.fixture
def run_job(monkeypatch: pytest.MonkeyPatch) -> Callable[..., JobResult]:
    """Runs a job whose stages are a function of its JobMaster; another hears when Spark is to end them."""
    with recording() as executor:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection([1]).print()
        env.execute_async("job")
    graph = executor.last
    masters: list[BatchJobMaster] = []

    async def result_of(host: Any) -> JobResult:
        random = SeededRandom(1)
        service = LoopbackNetwork(SystemClock(), random).create_service("driver")
        ended: asyncio.Future[ArchivedJob] = asyncio.get_running_loop().create_future()
        master = BatchJobMaster(
            service,
            JobMasterId.generate(random),
            graph,
            host,
            0,
            is_of_program=True,
            on_ended=ended.set_result,
        )
        masters.append(master)
        master.start()
        archived = await asyncio.wait_for(ended, WAIT_S)
        await service.stop()
        return archived.job.result

    def run(
        stages: Callable[[BatchJobMaster], None], on_cancelled: Callable[[], None]
    ) -> JobResult:
        def run_stages(_: StageRun) -> list[Any]:
            stages(masters[-1])
            return []

        monkeypatch.setattr(StageRun, "_run_stages", run_stages)
        spark = Mock()
        spark.sparkContext.cancelJobGroup = lambda _: on_cancelled()
        host = BatchHost(
            spark, output_pipe="", pipe_folder="", blob_server=Mock(), blob=Mock(), resources=Mock()
        )
        return asyncio.run(result_of(host))

    return run


def test_stages_that_end_while_the_job_master_fails_commit_nothing(
    run_job: Callable[..., JobResult],
) -> None:
    are_cancelled = threading.Event()
    may_commit: list[bool] = []

    def stages(master: BatchJobMaster) -> None:
        master.run_async(fail)
        assert are_cancelled.wait(WAIT_S)
        may_commit.append(master._turn.begin_commits())

    result = run_job(stages, are_cancelled.set)
    assert may_commit == [False]
    assert result.status is JobStatus.FAILED
    assert result.failure is not None and "a bug in the JobMaster" in result.failure.text


def test_a_job_that_commits_as_its_job_master_fails_has_finished(
    run_job: Callable[..., JobResult],
) -> None:
    def stages(master: BatchJobMaster) -> None:
        assert master._turn.begin_commits()
        master.run_async(fail)
        assert not master._turn.await_retry(WAIT_S * 1000), "no commit is tried again"

    result = run_job(stages, lambda: None)
    assert (result.status, result.failure) == (JobStatus.FINISHED, None)
