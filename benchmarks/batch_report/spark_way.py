"""Spark SQL on `local[4]`, its functions of Python as pandas UDFs; without a function it is SQL alone, in the JVM.

Two shuffle partitions, as the others have two subtasks, and adaptive execution as it is by default. The time is that
of a write to `noop`.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.batch_report.queries import (
    FIRST_ORDER_DAY,
    SHIPPED_UNTIL,
    SIZE_MS,
    in_euros,
    next_count,
)
from benchmarks.batch_report.way import way_main
from headrace.core.config import Settings
from headrace.spark.session.session import host_session

Read = Callable[[str], DataFrame]


def currency(read: Read) -> DataFrame:
    euros: Any = cast(Any, F.pandas_udf)(lambda prices: prices.map(in_euros), "double")
    return read("bid").select("auction", "bidder", euros("price"), "date_time")


def expensive(read: Read) -> DataFrame:
    def count(frame: Any) -> Any:
        total = 0
        for price in frame["price"].tolist():
            total = next_count(total, price)
        return frame.head(1)[["bidder"]].assign(total=total)

    bids = read("bid").select("bidder", "price")
    return bids.groupBy("bidder").applyInPandas(count, "bidder long, total long")


def highest(read: Read) -> DataFrame:
    begin = (F.floor(F.col("date_time") / SIZE_MS) * SIZE_MS).alias("begin")
    return read("bid").groupBy(begin).agg(F.max("price"))


def newcomers(read: Read) -> DataFrame:
    begin = (F.floor(F.col("date_time") / SIZE_MS) * SIZE_MS).alias("begin")
    sellers = read("auction").select(F.col("seller").alias("id"), begin).distinct()
    return (
        read("person")
        .select("id", "name", begin)
        .join(sellers, ["id", "begin"])
        .select("id", "name", "begin")
    )


def pricing(read: Read) -> DataFrame:
    reduced: Any = cast(Any, F.pandas_udf)(lambda price, discount: price * (100 - discount), "long")
    taxed: Any = cast(Any, F.pandas_udf)(lambda price, tax: price * (tax + 100), "long")
    shipped = read("item").where(F.col("shipped") <= SHIPPED_UNTIL)
    priced = shipped.withColumn("discounted", reduced("price", "discount"))
    charged = priced.withColumn("charged", taxed("discounted", "tax"))
    sums = [F.sum(name) for name in ("quantity", "price", "discounted", "charged")]
    return charged.groupBy("status").agg(*sums, F.count("*"))


def priorities(read: Read) -> DataFrame:
    early = read("order").where(F.col("day") < FIRST_ORDER_DAY)
    pairs = read("item").join(early, F.col("order") == F.col("id"))
    turnover = F.col("price") * (100 - F.col("discount"))
    return pairs.groupBy("priority").agg(F.sum(turnover), F.count("*"))


QUERIES: Final[dict[str, Callable[[Read], DataFrame]]] = {
    "currency": currency,
    "expensive": expensive,
    "highest": highest,
    "newcomers": newcomers,
    "pricing": pricing,
    "priorities": priorities,
}


def build(query: str, directory: Path) -> DataFrame:
    """Return the results of a query."""
    spark: SparkSession = host_session(Settings({"headrace.spark.master": "local[4]"})).spark
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    return QUERIES[query](lambda kind: spark.read.parquet(str(directory / kind)))


def collect(query: str, directory: Path) -> Iterable[tuple[Any, ...]]:
    """Return the results."""
    return map(tuple, build(query, directory).collect())


def discard(query: str, directory: Path) -> None:
    """Run to the end."""
    build(query, directory).write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    way_main(collect, discard)
