"""Programs written for PyFlink, but for the first word of their imports: they run, and print what they print there.

The expected lines are what PyFlink 2.3 prints for programs of these shapes.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.common import Encoder, Row, Time, Types, WatermarkStrategy
from headrace.common.watermark_strategy import TimestampAssigner
from headrace.datastream import ProcessWindowFunction, StreamExecutionEnvironment, WindowFunction
from headrace.datastream.connectors.file_system import (
    BucketAssigner,
    FileEnumeratorProvider,
    FileSink,
    FileSource,
    FileSplitAssignerProvider,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
)
from headrace.datastream.connectors.hybrid_source import HybridSource
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from headrace.datastream.functions import KeyedProcessFunction, RuntimeContext
from headrace.datastream.state import StateTtlConfig, ValueStateDescriptor
from headrace.datastream.window import (
    CountWindow,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TimeWindow,
)
from headrace.table import DataTypes

WORD = Types.TUPLE([Types.STRING(), Types.INT()])


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())


class CountInWindow(
    ProcessWindowFunction[tuple[str, int], tuple[str, int, int, int], str, TimeWindow]
):
    def process(
        self, key: str, context: Any, elements: Iterable[tuple[str, int]]
    ) -> Iterable[tuple[str, int, int, int]]:
        return [(key, context.window().start, context.window().end, len(list(elements)))]


class SumOfCountWindow(WindowFunction[tuple[str, int], tuple[str, int], str, CountWindow]):
    def apply(
        self, key: str, window: CountWindow, inputs: Iterable[tuple[str, int]]
    ) -> Iterable[tuple[str, int]]:
        return [(key, sum(element[1] for element in inputs))]


class Sum(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("sum", Types.FLOAT())
        config = StateTtlConfig.new_builder(Time.seconds(100)).set_update_type(
            StateTtlConfig.UpdateType.OnReadAndWrite
        )
        descriptor.enable_time_to_live(config.disable_cleanup_in_background().build())
        self.sum = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        total = (self.sum.value() or 0) + value[1]
        self.sum.update(total)
        yield value[0], total


def collected(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as rows:
        return list(rows)


def test_records_of_json_are_changed_and_kept(env: StreamExecutionEnvironment) -> None:
    people = env.from_collection(
        [(1, '{"tel": 123, "country": "Germany"}'), (2, '{"tel": 135, "country": "China"}')],
        type_info=Types.ROW_NAMED(["id", "info"], [Types.INT(), Types.STRING()]),
    )

    def call(row: Row) -> tuple[int, dict[str, Any]]:
        info = json.loads(row.info)
        info["tel"] += 1
        return row.id, info

    found = collected(people.map(call).filter(lambda one: one[1]["country"] == "China"))
    assert found == [(2, {"tel": 136, "country": "China"})]


def test_sums_per_key_with_a_time_to_live(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(1)
    spent = [("Ada", 110.5), ("Bob", 30.25), ("Ada", 20.0)]
    stream = env.from_collection(spent, Types.TUPLE([Types.STRING(), Types.FLOAT()]))
    sums = stream.key_by(lambda one: one[0], key_type=Types.STRING()).process(
        Sum(), output_type=Types.TUPLE([Types.STRING(), Types.FLOAT()])
    )
    assert collected(sums) == [("Ada", 110.5), ("Bob", 30.25), ("Ada", 130.5)]


def test_windows_of_event_time_and_of_counts(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(1)
    times = [("hi", n) for n in (1, 2, 3, 4, 8, 9, 15)]
    result = Types.TUPLE([Types.STRING(), Types.INT(), Types.INT(), Types.INT()])
    keyed = (
        env.from_collection(times, type_info=WORD)
        .assign_timestamps_and_watermarks(STRATEGY)
        .key_by(lambda one: one[0], key_type=Types.STRING())
    )
    sessions = keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(5)))
    assert collected(sessions.process(CountInWindow(), result)) == [
        ("hi", 1, 14, 6),
        ("hi", 15, 20, 1),
    ]
    sliding = keyed.window(SlidingEventTimeWindows.of(Time.milliseconds(5), Time.milliseconds(2)))
    assert collected(sliding.process(CountInWindow(), result))[:2] == [
        ("hi", -2, 3, 2),
        ("hi", 0, 5, 4),
    ]
    counted = keyed.count_window(2).apply(SumOfCountWindow(), WORD)
    assert collected(counted) == [("hi", 3), ("hi", 7), ("hi", 17)]


def test_csv_files_behind_each_other_become_text_and_csv(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    env.set_parallelism(1)
    schema = (
        CsvSchema.builder()
        .add_number_column("id", number_type=DataTypes.INT())
        .add_string_column("name")
        .add_array_column("tags", ",", element_type=DataTypes.STRING())
        .set_column_separator("|")
        .set_use_header()
        .set_strict_headers()
        .build()
    )
    sources = []
    for number in (1, 2):
        file = tmp_path / f"{number}.csv"
        file.write_text(f"id|name|tags\n{number}|n{number}|a,b\n")
        builder = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(file))
        builder.set_file_enumerator(FileEnumeratorProvider.default_non_splittable_file_enumerator())
        builder.set_split_assigner(FileSplitAssignerProvider.locality_aware_split_assigner())
        sources.append(builder.build())
    both = HybridSource.builder(sources[0]).add_source(sources[1]).build()
    rows = env.from_source(both, WatermarkStrategy.no_watermarks(), "csv")
    config = OutputFileConfig.builder().with_part_prefix("p").with_part_suffix(".txt").build()
    lines = FileSink.for_row_format(str(tmp_path / "lines"), Encoder.simple_string_encoder())
    lines.with_output_file_config(config).with_rolling_policy(
        RollingPolicy.default_rolling_policy()
    )
    lines.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    rows.map(lambda row: row.name, output_type=Types.STRING()).sink_to(lines.build())
    table = FileSink.for_bulk_format(str(tmp_path / "table"), CsvBulkWriters.for_schema(schema))
    table.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    rows.sink_to(table.build())
    env.execute("csv")
    assert [one.read_text() for one in (tmp_path / "lines").glob("p-*.txt")] == ["n1\nn2\n"]
    (written,) = (tmp_path / "table").glob("part-*")
    assert written.read_text().replace('"', "") == "id|name|tags\n1|n1|a,b\n2|n2|a,b\n"
    text = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(written)
    ).build()
    assert len(collected(env.create_input(text))) == 3


@pytest.mark.parametrize("parallelism", [1, 2])
def test_short_sources_one_after_the_other_are_read_once(
    env: StreamExecutionEnvironment, parallelism: int
) -> None:
    env.set_parallelism(parallelism)
    first, second = NumberSequenceSource(1, 3), NumberSequenceSource(10, 12)
    both = HybridSource.builder(first).add_source(second).build()
    rows = collected(env.from_source(both, WatermarkStrategy.no_watermarks(), "numbers"))
    assert sorted(rows) == [1, 2, 3, 10, 11, 12]
