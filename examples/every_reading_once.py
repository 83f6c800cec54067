"""Readings into Parquet files, each once, although the job fails on the way.

Two thousand readings come in a second. With each checkpoint, twice a second, those since the last one become files;
small files are merged before anybody sees them. In the middle a reading breaks the job, once: it starts again from its
last checkpoint, reads again what came after it, and no reading is in the files twice or missing.

Run it:
    headrace run examples/every_reading_once.py
"""

from pathlib import Path

import pyarrow.parquet as pq

from headrace.common import Configuration, Row, Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from headrace.datastream.connectors.file_system import (
    BucketAssigner,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
)
from headrace.datastream.formats.parquet import ParquetBulkWriters

COUNT = 6_000
READING = Types.ROW_NAMED(
    ["reading", "sensor", "celsius"], [Types.LONG(), Types.LONG(), Types.DOUBLE()]
)
OUT = Path("readings").absolute()


class BreakOnce(MapFunction):
    """Passes readings on, but for one that breaks the job the first time it comes."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.is_first_attempt = runtime_context.get_attempt_number() == 0

    def map(self, value: Row) -> Row:
        if self.is_first_attempt and value.reading == COUNT // 2:
            raise RuntimeError("a reading that breaks the job")
        return value


def reading(number: int) -> Row:
    """What the sensors say, as far as anybody can tell."""
    return Row(reading=number, sensor=number % 1000, celsius=15 + number % 97 / 10)


def parquet_sink() -> FileSink:
    """Files of a megabyte, or of ten checkpoints where that is less."""
    strategy = FileCompactStrategy.builder().set_size_threshold(1_000_000)
    builder = FileSink.for_bulk_format(str(OUT), ParquetBulkWriters.for_row_type())
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    builder.enable_compact(
        strategy.enable_compaction_on_checkpoint(10).build(),
        FileCompactor.parquet_file_compactor(),
    )
    return builder.build()


configuration = Configuration()
configuration.set_string("execution.checkpointing.interval", "500 ms")
configuration.set_string("restart-strategy.type", "fixed-delay")
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.from_source(
    DataGeneratorSource(reading, COUNT, READING, rows_per_second=2_000),
    WatermarkStrategy.no_watermarks(),
    "readings",
).map(BreakOnce(), READING).sink_to(parquet_sink())
env.execute("every reading once")

files = sorted(OUT.glob("part-*"))
numbers = [n for file in files for n in pq.read_table(file)["reading"].to_pylist()]
print(f"{len(numbers):,} readings, {len(set(numbers)):,} of them different, in {len(files)} files")
