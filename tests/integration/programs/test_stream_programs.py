"""Programs as users write them, with the results that PyFlink's own tests pin down."""

from collections import Counter
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace import (
    OutputTag,
    Row,
    StreamExecutionEnvironment,
    Time,
    Types,
    WatermarkStrategy,
    agg,
    col,
)
from headrace.common import Encoder
from headrace.common.watermark_strategy import TimestampAssigner
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.errors import JobExecutionError, RecordTypeError
from headrace.datastream import (
    CoMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
)
from headrace.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    StreamFormat,
)
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.state import MapStateDescriptor, ValueStateDescriptor
from headrace.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

PAIR = Types.TUPLE([Types.INT(), Types.INT()])
PAIRS = [(1, 1), (1, 2), (1, 3), (2, 5), (2, 1)]
NAMED = Types.ROW_NAMED(["name", "time"], [Types.STRING(), Types.INT()])


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[1]


def timed(env: StreamExecutionEnvironment, times: list[int]) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    stream = env.from_collection([("hi", one) for one in times], NAMED)
    # One task, so that the order of the list is the order of the stream.
    return stream.assign_timestamps_and_watermarks(strategy).set_parallelism(1)


def collected(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as records:
        return list(records)


# -- record by record


def test_map_flat_map_and_filter_run_in_parallel(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_source(
        NumberSequenceSource(1, 100), WatermarkStrategy.no_watermarks(), "numbers"
    )
    squares = numbers.map(lambda n: n * n).flat_map(lambda n: [n, -n]).filter(lambda n: n % 2 == 0)
    expected = [sign * n * n for n in range(2, 101, 2) for sign in (1, -1)]
    assert sorted(collected(squares)) == sorted(expected)


def test_classes_of_the_program_travel_undeclared(env: StreamExecutionEnvironment) -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    points = env.from_collection([Point(1), Point(2)]).rebalance().map(lambda point: point)
    assert sorted(point.x for point in collected(points)) == [1, 2]


def test_typed_values_come_out_as_they_went_in(env: StreamExecutionEnvironment) -> None:
    values: list[tuple[Any, Any]] = [
        (Types.BOOLEAN(), True),
        (Types.LONG(), 1 << 40),
        (Types.DOUBLE(), 1.98932),
        (Types.STRING(), "flink"),
        (Types.SQL_DATE(), date(2014, 9, 13)),
        (Types.SQL_TIME(), time(12, 0, 0, 123000)),
        (Types.SQL_TIMESTAMP(), datetime(2018, 3, 11, 3, 0, 0, 123000)),
        (Types.BIG_DEC(), Decimal("1000000000000000000.05999999999999999")),
        (Types.LIST(Types.INT()), [1, 2, 3]),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": 1}),
        (Types.STRING(), None),
    ]
    record = tuple(value for _, value in values)
    row_type = Types.ROW([one for one, _ in values])
    (row,) = collected(env.from_collection([record], row_type).rebalance().filter(lambda _: True))
    assert tuple(row) == record


def test_numbers_too_large_for_their_type_are_refused_by_name(
    env: StreamExecutionEnvironment,
) -> None:
    row_type = Types.ROW([Types.SHORT(), Types.INT()])
    with pytest.raises(
        RecordTypeError, match="'f0': expected an integer of 16 bits, got int 43878"
    ):
        env.from_collection([(43878, 9147483648)], row_type)


def test_a_stream_united_with_itself_gives_duplicates(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1, 2], Types.INT())
    assert sorted(collected(numbers.union(numbers))) == [1, 1, 2, 2]


def test_broadcast_reaches_every_subtask(env: StreamExecutionEnvironment) -> None:
    class Where(ProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.index = runtime_context.get_index_of_this_subtask()

        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value, self.index

    everywhere = env.from_collection(["a", "b"]).broadcast().process(Where())
    assert sorted(collected(everywhere)) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


def test_a_custom_partitioner_chooses_the_subtask(env: StreamExecutionEnvironment) -> None:
    class Where(ProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.index = runtime_context.get_index_of_this_subtask()

        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value, self.index

    numbers = env.from_collection([1, 2, 3, 4], Types.INT())
    placed = numbers.partition_custom(lambda key, count: key % count, lambda n: n).process(Where())
    assert sorted(collected(placed)) == [(1, 1), (2, 0), (3, 1), (4, 0)]


def test_a_limit_gives_the_first_records(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1, 2, 3, 4, 5], Types.INT())
    assert numbers.execute_and_collect(limit=3) == [1, 2, 3]


def test_closing_the_iterator_ends_an_endless_job(env: StreamExecutionEnvironment) -> None:
    endless = env.from_source(
        DataGeneratorSource(lambda index: index), WatermarkStrategy.no_watermarks(), "endless"
    )
    with endless.map(lambda n: n).execute_and_collect() as records:
        first = [next(records) for _ in range(5)]
        client = records.get_job_client()
    assert all(n >= 0 for n in first)
    assert client.get_job_status().result().name == "CANCELED"


# -- keys and state


def test_rolling_aggregations_emit_for_every_record(env: StreamExecutionEnvironment) -> None:
    def keyed() -> Any:
        return env.from_collection(PAIRS, PAIR).key_by(lambda pair: pair[0], Types.INT())

    def by_key(stream: Any) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for key, value in collected(stream):
            found.setdefault(key, []).append(value)
        return found

    assert by_key(keyed().sum(1)) == {1: [1, 3, 6], 2: [5, 6]}
    assert by_key(keyed().min(1)) == {1: [1, 1, 1], 2: [5, 1]}
    assert by_key(keyed().max_by(1)) == {1: [1, 2, 3], 2: [5, 5]}
    assert by_key(keyed().reduce(lambda a, b: (a[0], a[1] * b[1]))) == {1: [1, 2, 6], 2: [5, 5]}


def test_a_keyed_stream_is_collected_with_its_keys(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection([(1, 5)], PAIR).key_by(lambda pair: pair[0], Types.INT())
    assert collected(keyed) == [Row(f0=1, f1=(1, 5))]


def test_keyed_state_timers_and_side_outputs(env: StreamExecutionEnvironment) -> None:
    odd = OutputTag("odd", Types.INT())

    class Count(KeyedProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))
            descriptor = MapStateDescriptor("seen", Types.INT(), Types.INT())
            self.seen = runtime_context.get_map_state(descriptor)

        def process_element(self, value: Any, ctx: Any) -> Any:
            self.count.update((self.count.value() or 0) + 1)
            self.seen[value.time] = self.count.value()
            ctx.timer_service().register_event_time_timer(10)
            if value.time % 2:
                yield odd, value.time

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            yield ctx.get_current_key(), timestamp, self.count.value(), sorted(self.seen.items())

    def counted() -> Any:
        return timed(env, [1, 2, 3]).key_by("name").process(Count())

    assert collected(counted()) == [("hi", 10, 3, [(1, 1), (2, 2), (3, 3)])]
    assert collected(counted().get_side_output(odd)) == [1, 3]


def test_connected_keyed_streams_share_state_and_timers(env: StreamExecutionEnvironment) -> None:
    class Meet(KeyedCoProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.INT()))

        def process_element1(self, value: Any, ctx: Any) -> Any:
            self.total.update((self.total.value() or 0) + 1)
            ctx.timer_service().register_event_time_timer(3)
            yield from ()

        def process_element2(self, value: Any, ctx: Any) -> Any:
            self.total.update((self.total.value() or 0) + 10)
            yield from ()

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            yield f"{ctx.get_current_key()} {timestamp} {self.total.value()}"

    left, right = timed(env, [1, 2]), timed(env, [1, 2, 3])
    met = left.connect(right).key_by("name", "name").process(Meet(), Types.STRING())
    assert collected(met) == ["hi 3 32"]


def test_connected_streams_of_two_types(env: StreamExecutionEnvironment) -> None:
    class Text(CoMapFunction):
        def map1(self, value: Any) -> str:
            return f"n{value}"

        def map2(self, value: Any) -> str:
            return f"s{value}"

    numbers, texts = env.from_collection([1], Types.INT()), env.from_collection(["a"])
    assert sorted(collected(numbers.connect(texts).map(Text(), Types.STRING()))) == ["n1", "sa"]


# -- windows


class Bounds(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        window = context.window()
        return [(key, window.start, window.end, len(list(elements)))]


@pytest.mark.parametrize(
    ("assigner", "times", "expected"),
    [
        (
            TumblingEventTimeWindows.of(Time.milliseconds(5)),
            [1, 2, 3, 4, 5, 8, 9, 15],
            [("hi", 0, 5, 4), ("hi", 5, 10, 3), ("hi", 15, 20, 1)],
        ),
        (
            SlidingEventTimeWindows.of(Time.milliseconds(5), Time.milliseconds(2)),
            [1, 2, 3, 4, 5, 8, 9, 15],
            [
                ("hi", -2, 3, 2),
                ("hi", 0, 5, 4),
                ("hi", 2, 7, 4),
                ("hi", 4, 9, 3),
                ("hi", 6, 11, 2),
                ("hi", 8, 13, 2),
                ("hi", 12, 17, 1),
                ("hi", 14, 19, 1),
            ],
        ),
        (
            EventTimeSessionWindows.with_gap(Time.milliseconds(5)),
            [1, 2, 3, 4, 8, 9, 15],
            [("hi", 1, 14, 6), ("hi", 15, 20, 1)],
        ),
    ],
)
def test_event_time_windows_hold_the_rows_of_their_span(
    env: StreamExecutionEnvironment, assigner: Any, times: list[int], expected: list[Any]
) -> None:
    windowed = timed(env, times).key_by(lambda row: row.name).window(assigner).process(Bounds())
    assert collected(windowed) == expected


def test_count_windows_fire_once_per_complete_window(env: StreamExecutionEnvironment) -> None:
    class Total(ReduceFunction):
        def reduce(self, value1: Any, value2: Any) -> Any:
            return value1[0], value1[1] + value2[1]

    pairs = env.from_collection([(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2)], PAIR)
    assert collected(pairs.key_by(lambda pair: pair[0]).count_window(3).reduce(Total())) == [(1, 6)]


def test_windows_over_everything_are_one_task(env: StreamExecutionEnvironment) -> None:
    numbers = timed(env, [1, 2, 6, 7]).window_all(TumblingEventTimeWindows.of(Time.milliseconds(5)))
    totals = numbers.reduce(lambda a, b: Row(name=a.name, time=a.time + b.time))
    assert [row.time for row in collected(totals)] == [3, 13]


# -- columns


def test_columnar_calls_from_filter_to_window(env: StreamExecutionEnvironment) -> None:
    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        time_column = pc.multiply(batch.column("time"), 2)
        return pa.RecordBatch.from_arrays([batch.column("name"), time_column], schema=batch.schema)

    windows = (
        timed(env, [1, 2, 3, 4, 6, 9])
        .filter(col("time") != 2)
        .map_batches(doubled)
        .select("name", half=col("time") / 2, time=col("time"))
        .key_by("name")
        .window(TumblingEventTimeWindows.of(Time.milliseconds(5)))
        .aggregate(
            agg.count().alias("rows"), agg.mean("half"), agg.max("time"), agg.quantile("half", 0.5)
        )
    )
    rows = [(row.name, row.rows, row.mean_half, row.max_time) for row in collected(windows)]
    assert rows == [("hi", 3, pytest.approx(8 / 3), 8), ("hi", 2, 7.5, 18)]


# -- files


def test_files_are_read_and_written(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    source_folder, target = tmp_path / "in", tmp_path / "out"
    source_folder.mkdir()
    for name in ("a.txt", "b.txt", "c.txt"):
        (source_folder / name).write_text("to be or\nnot to be\n", encoding="utf-8")
    text = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(source_folder)
    ).build()
    words = env.from_source(text, WatermarkStrategy.no_watermarks(), "text").flat_map(
        lambda line: line.split(), Types.STRING()
    )
    base_path = BucketAssigner.base_path_bucket_assigner()
    sink = FileSink.for_row_format(str(target), Encoder.simple_string_encoder())
    words.sink_to(sink.with_bucket_assigner(base_path).build())
    env.execute("word list")
    written = [word for file in target.iterdir() for word in file.read_text().split()]
    assert Counter(written) == {"to": 6, "be": 6, "or": 3, "not": 3}
    assert not [file for file in target.iterdir() if file.name.startswith(".")]


# -- bad input


def test_an_error_of_user_code_names_cause_operator_file_and_line(
    env: StreamExecutionEnvironment,
) -> None:
    def parse(text: str) -> int:
        return int(text)

    env.from_collection(["1", "two"]).map(parse).name("parse numbers").print()
    with pytest.raises(JobExecutionError) as caught:
        env.execute("bad input")
    first_line = str(caught.value).splitlines()[0]
    line = parse.__code__.co_firstlineno + 1
    assert first_line.startswith("ValueError: invalid literal for int() with base 10: 'two'")
    assert "operator 'parse numbers'" in first_line
    assert f"{__file__}, line {line}" in first_line


def test_a_record_that_does_not_fit_its_type_names_the_operator(
    env: StreamExecutionEnvironment,
) -> None:
    wrong = env.from_collection([1], Types.INT()).map(lambda n: "text", Types.INT()).name("typed")
    with pytest.raises(JobExecutionError, match=r"does not fit its declared type Integer.*'typed'"):
        collected(wrong.rebalance().map(lambda n: n))


def test_a_partition_out_of_range_fails_the_job(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1], Types.INT()).partition_custom(lambda key, count: 7, hash).print()
    with pytest.raises(JobExecutionError):
        env.execute()
