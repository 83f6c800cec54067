"""Columns in and columns out: streams of Arrow data, and their results as Arrow, pandas and polars."""

from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow as pa
import pytest
from pyarrow import parquet

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy, col
from headrace.api.client.job_display import job_page
from headrace.connectors.dataframe.batch_log import BatchLog
from headrace.connectors.dataframe.batch_log_source import BatchLogSource
from headrace.connectors.dataframe.messages import StagedPart
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.lifecycle import JobStatus
from headrace.testing.minicluster_executor import MiniClusterExecutor

pytestmark = pytest.mark.integration

ROWS = pa.table({"n": pa.array(range(50_000), pa.int64()), "s": ["x"] * 50_000})


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniClusterExecutor]:
    with MiniClusterExecutor(slot_count=2) as executor:
        yield executor


@pytest.fixture
def env(cluster: MiniClusterExecutor) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)


def test_a_table_goes_through_two_subtasks_and_comes_out_whole(
    env: StreamExecutionEnvironment,
) -> None:
    made = env.from_arrow(ROWS).filter(col("n") >= 10).to_arrow()
    assert made.sort_by("n").equals(ROWS.slice(10))


def test_many_bytes_travel_as_a_blob(env: StreamExecutionEnvironment) -> None:
    large = pa.table({"n": pa.array(range(1_000_000), pa.int64())})
    assert env.from_arrow(large).select(twice=col("n") * 2).to_arrow().num_rows == 1_000_000


@pytest.mark.parametrize(
    "open_rows",
    [
        lambda: ROWS.to_reader(max_chunksize=1000),
        lambda: duckdb.sql("SELECT range AS n, 'x' AS s FROM range(50000)"),
    ],
    ids=["reader", "DuckDB"],
)
def test_a_reader_of_batches_and_the_result_of_a_query_come_in_whole(
    env: StreamExecutionEnvironment, open_rows: Callable[[], object]
) -> None:
    assert env.from_arrow(open_rows()).to_arrow().sort_by("n").equals(ROWS)
    assert env.from_dataframe(open_rows()).filter(col("n") < 5).to_arrow().num_rows == 5


def test_a_reader_that_was_read_has_no_rows_left(env: StreamExecutionEnvironment) -> None:
    reader = ROWS.to_reader()
    env.from_arrow(reader)
    assert env.from_arrow(reader).to_arrow().num_rows == 0


def test_pandas_in_and_out(env: StreamExecutionEnvironment) -> None:
    frame = pandas.DataFrame({"n": [1, 2, 3]})
    made = env.from_dataframe(frame).map_batches(lambda batch: batch).to_pandas()
    assert sorted(made["n"]) == [1, 2, 3]


def test_polars_in_and_out(env: StreamExecutionEnvironment) -> None:
    frame = polars.DataFrame({"n": [1, 2, 3]})
    made = env.from_dataframe(frame).filter(col("n") > 1).to_polars()
    assert sorted(made["n"].to_list()) == [2, 3]


def test_an_empty_result_has_the_columns_of_its_type(env: StreamExecutionEnvironment) -> None:
    assert env.from_arrow(ROWS).filter(col("n") < 0).to_arrow().schema == ROWS.schema


def test_a_limit_ends_a_stream_without_an_end(env: StreamExecutionEnvironment) -> None:
    source = DataGeneratorSource(lambda index: index, type_info=Types.LONG())
    endless = env.from_source(source, WatermarkStrategy.no_watermarks(), "endless")
    assert endless.to_arrow(limit=7).column("value").length() == 7


def test_a_preview_of_a_stream_without_an_end_shows_the_first_records_and_runs_no_sink(
    env: StreamExecutionEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    source = DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=100)
    endless = env.from_source(source, WatermarkStrategy.no_watermarks(), "endless")
    endless.print()
    assert len(endless.preview(3)) == 3
    assert capfd.readouterr().out == ""


def test_a_preview_returns_what_came_where_time_passes_first(
    env: StreamExecutionEnvironment,
) -> None:
    source = DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=1e-6)
    slow = env.from_source(source, WatermarkStrategy.no_watermarks(), "slow")
    assert len(slow.preview(3, timeout_s=0.2)) == 0


def test_a_preview_leaves_a_log_of_batches_to_the_program(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    env.enable_checkpointing(20)
    log = BatchLog(str(tmp_path / "log"))
    for number in range(1, 6):
        path = str(tmp_path / f"{number}.parquet")
        parquet.write_table(pa.table({"n": pa.array([number], pa.int64())}), path)
        log.append("query", number, [StagedPart(path, 1, 0, 0)])
    source = BatchLogSource(log.path, Types.ROW_NAMED(["n"], [Types.LONG()]))
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "log")
    # More than there are, so that it runs while many checkpoints would be taken.
    assert len(numbers.preview(6, timeout_s=2)) == 5
    assert log.first_number == 1
    assert sorted(numbers.to_arrow(limit=5)["n"].to_pylist()) == [1, 2, 3, 4, 5]


def test_the_page_of_a_job_says_what_it_is(env: StreamExecutionEnvironment) -> None:
    env.from_arrow(ROWS).map(lambda row: row.n, Types.LONG()).print()
    client = env.execute_async("pages")
    client.get_job_execution_result().result()
    page = job_page(client)[0]
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert "Job &#x27;pages&#x27;" in page and "FINISHED" in page and "Source: Arrow" in page
