"""Jobs that a test leaves running in a shared cluster do not hold the slots of the next one."""

import pytest

from headrace import StreamExecutionEnvironment, WatermarkStrategy
from headrace.cluster.minicluster import MiniCluster
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.lifecycle import JobStatus
from tests.integration.programs.conftest import cancel_all

pytestmark = pytest.mark.integration


def test_jobs_that_run_are_cancelled_and_those_that_ended_stay_as_they_are(
    cluster: MiniCluster, env: StreamExecutionEnvironment
) -> None:
    assert env.from_collection([1, 2]).execute_and_collect(limit=2) == [1, 2]
    finished = cluster.handle.call(cluster.handle.dispatcher.list_jobs())
    source = DataGeneratorSource(lambda index: index)
    endless = env.from_source(source, WatermarkStrategy.no_watermarks(), "endless")
    records = endless.map(str).execute_and_collect()
    next(records)
    cancel_all(cluster)
    assert records.get_job_client().get_job_status().result() is JobStatus.CANCELED
    jobs = cluster.handle.call(cluster.handle.dispatcher.list_jobs())
    assert len(jobs) > len(finished)
    assert all(job in jobs for job in finished)
    # Both slots are free again, and nothing is cancelled twice.
    cancel_all(cluster)
    numbers = env.from_collection([3, 4]).rebalance().map(lambda number: number + 1)
    assert sorted(numbers.execute_and_collect(limit=2)) == [4, 5]
