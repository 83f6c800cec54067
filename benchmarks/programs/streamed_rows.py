"""Reads files as a stream, stamps each row in Python, and writes what is committed: by Headrace, or by Spark alone.

python streamed_rows.py headrace|spark DIRECTORY INTERVAL_MS FILES: files of `DIRECTORY/in` are read, at most `FILES` in
a micro-batch, until `DIRECTORY/stop` is there. `INTERVAL_MS` is between checkpoints of Headrace, and between
micro-batches of Spark alone. A commit is a folder of Parquet files in `DIRECTORY/out`, and a line with its moment in
`DIRECTORY/commits`.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema({"id": pa.int64(), "written": pa.float64(), "seen": pa.float64()})
DIRECTORY, INTERVAL_MS, FILES = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])


def stamp(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Put the moment beside each row."""
    seen = pa.array([time.time()] * batch.num_rows, pa.float64())
    return pa.RecordBatch.from_arrays([*batch.columns[:2], seen], schema=SCHEMA)


def stamp_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do as `stamp`, where Spark gives the batches of a partition."""
    yield from map(stamp, batches)


def write(df: DataFrame, number: int) -> None:
    """Write what one checkpoint or micro-batch has."""
    df.write.mode("overwrite").parquet(str(DIRECTORY / "out" / str(int(number))))
    with (DIRECTORY / "commits").open("a") as commits:
        commits.write(f"{int(number)} {time.time()}\n")


def await_stop() -> None:
    """Return once nothing more is to come."""
    while not (DIRECTORY / "stop").exists():
        time.sleep(0.1)


def files(session: SparkSession) -> DataFrame:
    """Return the stream."""
    reader = session.readStream.schema("id bigint, written double")
    return reader.option("maxFilesPerTrigger", FILES).parquet(str(DIRECTORY / "in"))


def run_headrace() -> None:
    """Stamp in an operator; commit with each checkpoint."""
    from headrace import StreamExecutionEnvironment
    from headrace.common import Configuration
    from headrace.spark.session import spark_session

    configuration = Configuration()
    configuration.set_string("execution.checkpointing.dir", str(DIRECTORY / "checkpoints"))
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(2).enable_checkpointing(INTERVAL_MS)
    rows = environment.from_dataframe(files(spark_session()))
    rows.map_batches(stamp, SCHEMA).foreach_batch(write)
    client = environment.execute_async("streamed rows")
    await_stop()
    client.cancel().result()


def run_spark() -> None:
    """Stamp in `mapInArrow`; commit with each micro-batch."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false")
    schema = "id bigint, written double, seen double"
    stamped = files(builder.getOrCreate()).mapInArrow(stamp_all, schema)
    writer = stamped.writeStream.option("checkpointLocation", str(DIRECTORY / "query"))
    query = writer.trigger(processingTime=f"{INTERVAL_MS} milliseconds").foreachBatch(write).start()
    await_stop()
    query.stop()


if __name__ == "__main__":
    {"headrace": run_headrace, "spark": run_spark}[sys.argv[1]]()
