"""Corrects a savepoint with Spark: one total was too low, and one customer's data must go.

The savepoint is of a job whose operator `totals` keeps a number by customer, in the state `total`. Nothing of the job
is needed to read or to edit it. The old savepoint stays as it is, and the job goes on from the new one with
`headrace run -s NEW …`.

Run it:
    python examples/corrected_totals.py OLD NEW [KEY_FILE]
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headrace.spark.state_writer import StateWriter

TOO_LOW, MISSING, LEAVING = 3, 1_000, 5


def main(old: str, new: str, key_file: str | None = None) -> None:
    """Write the savepoint `new` of the savepoint `old`."""
    # Spark looks formats up in a Python worker: it must be this Python, which has Headrace.
    spark = SparkSession.builder.config("spark.pyspark.python", sys.executable).getOrCreate()
    state = spark.read.format("headrace-state").option("path", old)
    if key_file is not None:
        state = state.option("keyFile", key_file)
    state.option("table", "operators").load().select("uid", "rows", "states.name").show()

    totals = state.option("table", "keyed").option("operator", "totals").option("state", "total")
    is_too_low = F.col("key") == TOO_LOW
    corrected = totals.load().withColumn(
        "value", F.col("value") + F.when(is_too_low, MISSING).otherwise(0)
    )
    writer = StateWriter.from_(old, key_file=key_file).replace("totals", "total", corrected)
    written = writer.remove_keys("totals", [LEAVING]).write(new, reason="customer 3 was too low")
    print(f"go on from {written}")


if __name__ == "__main__":
    main(*sys.argv[1:])
