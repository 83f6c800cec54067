"""Counts requests per minute over CSV files, with positions in checkpoints, and fails once on purpose.

Files are found by the JobMaster, cut into ranges, and read as columns by the subtasks that ask for work. A checkpoint
holds each range with the position in it. In the middle one subtask fails; the job goes on from the newest checkpoint,
and the counts are those of a run in which nothing failed. The files lie in a temporary folder, which goes at the end.

Run it:
    headrace run examples/requests_per_minute.py
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from headrace.common import Configuration, Duration, Row, Time, Types, WatermarkStrategy
from headrace.common.watermark_strategy import TimestampAssigner
from headrace.datastream import (
    MapFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from headrace.datastream.connectors.file_system import FileSource
from headrace.datastream.formats.csv import CsvReaderFormat
from headrace.datastream.window import TimeWindow, TumblingEventTimeWindows

FILES, REQUESTS_PER_FILE = 3, 4000
REQUEST = Types.ROW_NAMED(["second", "status"], [Types.LONG(), Types.INT()])
OPTIONS = {
    "execution.checkpointing.interval": "100 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


class SecondOfRow(TimestampAssigner):
    """Event time is the second in the row."""

    def extract_timestamp(self, value: Row, record_timestamp: int) -> int:
        return value.second * 1000


class FailOnce(MapFunction):
    """Passes requests on; the first attempt fails at the last request of the second file."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.is_first_attempt = runtime_context.get_attempt_number() == 0

    def map(self, value: Row) -> Row:
        if value.status == 599 and self.is_first_attempt:
            raise ValueError("a request that cannot be read, once")
        return value


class CountRequests(ProcessWindowFunction[Row, str, bool, TimeWindow]):
    """How many requests of a minute went wrong, or well."""

    def process(
        self, key: bool, context: ProcessWindowFunction.Context, elements: Iterator[Row]
    ) -> Iterator[str]:
        minute = context.window().start // 60_000
        yield f"minute {minute}: {len(list(elements))} {'failed' if key else 'served'}"


def write_requests(folder: Path) -> None:
    """A few files of requests, 40 a second; every tenth request fails."""
    for number in range(FILES):
        first = number * REQUESTS_PER_FILE
        lines = ["second,path,status"]
        for request in range(first, first + REQUESTS_PER_FILE):
            status = 500 if request % 10 == 0 else 200
            if number == 1 and request == first + REQUESTS_PER_FILE - 1:
                status = 599
            lines.append(f"{request // 40},/page/{request % 7},{status}")
        (folder / f"requests-{number}.csv").write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    configuration = Configuration()
    for key, value in OPTIONS.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    with tempfile.TemporaryDirectory() as folder:
        write_requests(Path(folder))
        files = FileSource.for_bulk_file_format(CsvReaderFormat(REQUEST), folder)
        # Ranges are read side by side, so that a subtask may be minutes ahead of the other.
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_hours(1))
        (
            env.from_source(
                files.with_split_size(16 << 10).build(),
                strategy.with_timestamp_assigner(SecondOfRow()),
                "requests",
            )
            .map(FailOnce(), output_type=REQUEST)
            .key_by(lambda request: request.status >= 500, key_type=Types.BOOLEAN())
            .window(TumblingEventTimeWindows.of(Time.minutes(1)))
            .process(CountRequests(), output_type=Types.STRING())
            .print()
        )
        env.execute("requests per minute")


if __name__ == "__main__":
    main()
