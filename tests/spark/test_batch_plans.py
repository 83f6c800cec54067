"""Spark plans each DataFrame of a job in BATCH mode once, however many aggregations it computes."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace import StreamExecutionEnvironment, agg
from headrace.core.config import Settings
from headrace.datastream.window import GlobalWindows
from headrace.spark.batch import spark_aggregates
from headrace.spark.batch.batch_job import BatchJob
from headrace.spark.batch.stage_resources import StageResources
from headrace.spark.master import parse_master
from headrace.spark.session.session import HostSession
from headrace.spark.workers.worker_sizes import WorkerSizes
from tests.unit.api.recording import recording

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

END = GlobalWindows.create_with_end_of_stream_trigger()


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The plans that were made."""
    made: list[str] = []
    plan_of: Callable[[SparkSession, DataFrame], str] = spark_aggregates.physical_plan

    def noted(spark: SparkSession, df: DataFrame) -> str:
        made.append(plan_of(spark, df))
        return made[-1]

    monkeypatch.setattr(spark_aggregates, "physical_plan", noted)
    return made


def test_each_dataframe_is_planned_once_for_all_aggregations(
    session: HostSession, planned: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    frames = [session.spark.range(0, count).selectExpr("id", "id % 5 AS k") for count in (10, 20)]
    with recording(2) as executor:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.configure({"execution.runtime-mode": "BATCH"})
        env.set_parallelism(2)
        for df in [*frames, frames[0]]:
            counted: Any = env.from_dataframe(df).key_by("k").window(END).aggregate(agg.count())
            counted.print()
        env.execute_async()
        graph = executor.last
    kind = parse_master(session.spark.sparkContext.master, 2)
    sizes = WorkerSizes(Settings(), dict(session.spark.sparkContext.getConf().getAll()), kind)
    job = BatchJob(session.spark, graph, "", StageResources(sizes))
    list(job.run())
    dataframes = {
        spark_aggregates.dataframe_id_of(vertex)
        for vertex in graph.vertices
        if spark_aggregates.reads_dataframe(vertex)
    }
    assert 1 < len(dataframes) == len(planned)
