"""Spark Structured Streaming: micro-batches of one Parquet file, DataFrame programs, the state store it comes with.

Trigger `availableNow`, on `local[2]`. Its clock runs from the start of the streaming query to its end, the second one
of one session. Results go to the `noop` sink; those to be compared to Parquet files. As Spark gives a window only when
later rows have come, a last file holds one row per kind, a day later than all others, of which nothing comes out.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from benchmarks.nexmark.peers.measure import READS, Figures, Measured, peer_main
from headrace.spark.session.java_runtime import ensure_java

CORES: Final = 2
FILES_PER_BATCH: Final = 1
DELAY: Final = "4 seconds"
SIZE: Final = "10 seconds"
DAY_MS: Final = 86_400_000
SENTINEL: Final = "part-999.parquet"
Read = Callable[[str], DataFrame]
# What the rows of a micro-batch still need, where they are all there is of their window.
Finish = Callable[[DataFrame], DataFrame]


def q0(read: Read) -> DataFrame:
    return read("bid").select("auction", "bidder", "price", "date_time")


def q1(read: Read) -> DataFrame:
    euros = f.col("price").cast("double") * f.lit(0.908)
    return read("bid").select("auction", "bidder", euros.alias("price"), "date_time")


def q2(read: Read) -> DataFrame:
    return read("bid").select("auction", "price").where(f.col("auction") % 123 == 0)


def q3(read: Read) -> DataFrame:
    auctions = read("auction").where("category = 10").select(f.col("id").alias("auction"), "seller")
    persons = read("person").where("state IN ('or', 'id', 'ca')")
    joined = auctions.join(persons, auctions.seller == persons.id)
    return joined.select("name", "city", "state", "auction")


def q5(read: Read) -> DataFrame:
    counts = _timed(read("bid")).groupBy(f.window("time", SIZE, "2 seconds"), "auction").count()
    return counts.select("auction", *_bounds(), "count")


def most_bids(counts: DataFrame) -> DataFrame:
    """Keep the auctions with most bids; a window's counts come all in one micro-batch."""
    most = f.max("count").over(Window.partitionBy("begin"))
    return counts.withColumn("most", most).where("count = most").drop("most")


def q7(read: Read) -> DataFrame:
    row = f.struct("price", "auction", "bidder", "date_time")
    best = _timed(read("bid")).groupBy(f.window("time", SIZE)).agg(f.max(row).alias("bid"))
    return best.select("bid.auction", "bid.bidder", "bid.price", "bid.date_time")


def q7max(read: Read) -> DataFrame:
    best = _timed(read("bid")).groupBy(f.window("time", SIZE)).agg(f.max("price").alias("price"))
    return best.select(*_bounds(), "price")


def q8(read: Read) -> DataFrame:
    window = f.window("time", SIZE)
    persons = _timed(read("person")).select("id", "name", window.alias("window"))
    sellers = _timed(read("auction")).groupBy(window.alias("window"), "seller").count()
    sellers = sellers.select("seller", f.col("window").alias("sold"))
    joined = persons.join(sellers, f.expr("id = seller AND window = sold"))
    return joined.select("id", "name", _milliseconds("window.start"))


def q11(read: Read) -> DataFrame:
    sessions = _timed(read("bid")).groupBy(f.session_window("time", SIZE).alias("window"), "bidder")
    return sessions.count().select("bidder", *_bounds(), "count")


QUERIES: Final[dict[str, Callable[[Read], DataFrame]]] = {
    "q0": q0,
    "q1": q1,
    "q2": q2,
    "q3": q3,
    "q5": q5,
    "q7": q7,
    "q7max": q7max,
    "q8": q8,
    "q11": q11,
}
FINISHES: Final[dict[str, Finish]] = {"q5": most_bids}
WINDOWED: Final = frozenset({"q5", "q7", "q7max", "q8", "q11"})


def _timed(rows: DataFrame) -> DataFrame:
    return rows.withColumn("time", f.timestamp_millis("date_time")).withWatermark("time", DELAY)


def _milliseconds(name: str) -> Any:
    return f.unix_millis(name)


def _bounds() -> list[Any]:
    return [
        _milliseconds("window.start").alias("begin"),
        _milliseconds("window.end").alias("end"),
    ]


def prepared(events: Path, kind: str, directory: Path) -> Path:
    """Return a directory with links to the files of a kind and, last, one with a single late row."""
    target = directory / kind
    target.mkdir()
    files = sorted((events / kind).glob("*.parquet"))
    for file in files:
        (target / file.name).hardlink_to(file)
    row = pq.read_table(files[-1]).slice(0, 1)
    at = row.column_names.index("date_time")
    later = pa.array([row.column("date_time")[0].as_py() + DAY_MS])
    pq.write_table(row.set_column(at, "date_time", later), target / SENTINEL)
    return target


def start_session(scratch: Path) -> SparkSession:
    """Return a session with as many tasks per stage as there are cores."""
    ensure_java()
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("nexmark peer")
    settings = {
        "spark.driver.memory": "4g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run_query(session: SparkSession, query: str, events: Path, out: Path | None) -> Figures:
    """Run a query to the end of its input."""
    scratch = Path(tempfile.mkdtemp(dir=events.parent))  # where links are possible

    def read(kind: str) -> DataFrame:
        directory = str(prepared(events, kind, scratch) if query in WINDOWED else events / kind)
        files = session.readStream.schema(session.read.parquet(directory).schema)
        return (
            files.option("maxFilesPerTrigger", FILES_PER_BATCH)
            .parquet(directory)
            .select(*READS[query][kind])
        )

    try:
        rows = QUERIES[query](read)
        finish = FINISHES.get(query)
        writer = rows.writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(scratch / "checkpoint"))
        if finish is not None:

            def write(batch: DataFrame, _: int) -> None:
                save(finish(batch), out)

            writer = writer.foreachBatch(write)
        elif out is not None:
            writer = writer.format("parquet").option("path", str(out))
        else:
            writer = writer.format("noop")
        with Measured() as measured:
            streaming = writer.start()
            streaming.awaitTermination()
        # Each micro-batch is committed to the checkpoint's folder.
        return measured.figures(checkpoints=len(streaming.recentProgress))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def save(batch: DataFrame, out: Path | None) -> None:
    """Write a micro-batch as the sinks of the other queries do."""
    if out is None:
        batch.write.format("noop").mode("overwrite").save()
    else:
        batch.write.mode("append").parquet(str(out))


def main() -> None:
    """Run a query."""
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        session = start_session(Path(scratch))

        def run(query: str, events: Path, out: Path | None) -> Figures:
            return run_query(session, query, events, out)

        peer_main(run, QUERIES, ["pyspark"])
        session.stop()


if __name__ == "__main__":
    main()
