"""The same as `first_record.py` by Spark Structured Streaming: `python first_record_pyspark.py DIRECTORY`."""

import json
import os
import sys
import time
from collections.abc import Iterator

began = time.time()

import pyarrow as pa  # noqa: E402 (what imports take is part of it)
from pyspark.sql import DataFrame, SparkSession  # noqa: E402


def stamp(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put the moment beside each line."""
    for batch in batches:
        moments = pa.array([time.time()] * batch.num_rows, pa.float64())
        yield pa.RecordBatch.from_arrays([batch.column(0), moments], names=["line", "moment"])


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    session.conf.set("spark.sql.shuffle.partitions", "2")
    submitted = time.time()
    moments: dict[str, float] = {}
    counts: list[int] = []

    def look(rows: DataFrame, _: int) -> None:
        """Take the rows of a micro-batch, and the moments of the first."""
        taken = rows.collect()
        if taken and not moments:
            moments.update(mapped=taken[0]["moment"], seen=time.time())
        counts.append(len(taken))

    lines = session.readStream.text(sys.argv[1]).mapInArrow(stamp, "line string, moment double")
    lines.writeStream.trigger(availableNow=True).foreachBatch(look).start().awaitTermination()
    print(json.dumps({"began": began, "submitted": submitted, **moments, "records": sum(counts)}))
