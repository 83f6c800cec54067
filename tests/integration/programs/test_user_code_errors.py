"""Mistakes in user code: each fails the job at once, with a first line that names cause, operator, file and line.

After each the same TaskManagers run the next job.
"""

import asyncio
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace import StreamExecutionEnvironment, Time, Types, WatermarkStrategy
from headrace.common.watermark_strategy import TimestampAssigner
from headrace.connectors.files.formats.text_lines import StreamFormat
from headrace.connectors.files.source.file_source import FileSource
from headrace.core.errors import JobExecutionError
from headrace.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
)
from headrace.datastream.state import ValueStateDescriptor
from headrace.datastream.window import TumblingEventTimeWindows
from headrace.functions.watermarks import ColumnTimestampAssigner

PAIR = Types.TUPLE([Types.INT(), Types.INT()])
LONG_ROW = Types.ROW_NAMED(["t"], [Types.LONG()])
SIDE = OutputTag("side", Types.INT())


def exits(value: Any) -> Any:
    sys.exit(3)


def fails(*_: Any) -> Any:
    raise ValueError("mistaken")


def yields(value: Any) -> Any:
    yield value


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


async def waits(value: Any) -> Any:
    return value


class Assigns(TimestampAssigner):
    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer = answer

    def extract_timestamp(self, value: Any, record_timestamp: int) -> Any:
        return self.answer()


class Forgets(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> Any:
        accumulator += 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class ExitsInOpen(MapFunction):
    def open(self, runtime_context: Any) -> None:
        sys.exit("no licence")

    def map(self, value: Any) -> Any:
        return value


class ExitsInClose(ExitsInOpen):
    def open(self, runtime_context: Any) -> None:
        pass

    def close(self) -> None:
        sys.exit(4)


class ExitsWhenLoaded:
    def __call__(self, *_: Any) -> int:
        return 0

    def __reduce__(self) -> Any:
        return sys.exit, (5,)


class ExitsInTimer(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(1)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        sys.exit(6)


class KeepsText(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.count.update("text")


class SetsTimer(KeyedProcessFunction):
    def __init__(self, time: Any) -> None:
        self.time = time

    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(self.time)


class GivesText(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield "text"
        yield SIDE, "text"


def numbers(env: StreamExecutionEnvironment) -> Any:
    return env.from_collection([1, 2, 3], Types.INT())


def assigned(stream: Any, assigner: TimestampAssigner) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(assigner))


def keyed(env: StreamExecutionEnvironment) -> Any:
    pairs = assigned(env.from_collection([(1, 1), (1, 2)], PAIR), Assigns(lambda: 5))
    return pairs.key_by(lambda pair: pair[0])


def untyped(env: StreamExecutionEnvironment) -> Any:
    return env.from_collection([(1, 1), (1, 2)]).key_by(lambda pair: pair[0])


def windowed(env: StreamExecutionEnvironment) -> Any:
    return keyed(env).window(TumblingEventTimeWindows.of(Time.seconds(1)))


def with_nulls(env: StreamExecutionEnvironment) -> Any:
    return env.from_collection([(1,), (None,)], LONG_ROW)


@dataclass(frozen=True)
class Mistake:
    """A program, the beginning of its error's first line, and the operator that it names."""

    build: Callable[[StreamExecutionEnvironment], Any]
    cause: str
    operator: str


TIMED = "Timestamps/Watermarks"
KEY_BY = "_stream_key_by_map_operator"
MISTAKES = {
    # -- the process is to end
    "exit in map": Mistake(
        lambda env: numbers(env).map(exits), "SystemExit: sys.exit(3) was called", "Map"
    ),
    "exit in filter": Mistake(lambda env: numbers(env).filter(exits), "SystemExit: ", "Filter"),
    "exit in flat_map": Mistake(
        lambda env: numbers(env).flat_map(exits), "SystemExit: ", "FlatMap"
    ),
    "exit in a key selector": Mistake(
        lambda env: numbers(env).key_by(exits).map(lambda n: n), "SystemExit: ", KEY_BY
    ),
    "exit in a reduce": Mistake(
        lambda env: keyed(env).reduce(lambda a, b: sys.exit()), "SystemExit: sys.exit() ", "Reduce"
    ),
    "exit in open": Mistake(
        lambda env: numbers(env).map(ExitsInOpen()), "SystemExit: sys.exit('no licence')", "Map"
    ),
    "exit in close": Mistake(lambda env: numbers(env).map(ExitsInClose()), "SystemExit: ", "Map"),
    "exit in a timer": Mistake(
        lambda env: keyed(env).process(ExitsInTimer()), "SystemExit: ", "KEYED PROCESS"
    ),
    "exit in an assigner": Mistake(
        lambda env: assigned(numbers(env), Assigns(lambda: sys.exit(7))), "SystemExit: ", TIMED
    ),
    "exit in a partitioner": Mistake(
        lambda env: numbers(env).map(abs).partition_custom(lambda *_: sys.exit(8), abs),
        "SystemExit: ",
        "Map",
    ),
    "exit while loaded": Mistake(
        lambda env: numbers(env).map(ExitsWhenLoaded()), "SystemExit: ", "Map"
    ),
    "exit while a partitioner is loaded": Mistake(
        lambda env: numbers(env).map(abs).partition_custom(ExitsWhenLoaded(), abs),
        "SystemExit: ",
        "Map",
    ),
    "interrupt": Mistake(
        lambda env: numbers(env).map(raising(KeyboardInterrupt)),
        "KeyboardInterrupt: without a message",
        "Map",
    ),
    "out of memory": Mistake(
        lambda env: numbers(env).map(raising(MemoryError)), "MemoryError: without a message", "Map"
    ),
    # -- what asyncio and generators end with
    "cancelled": Mistake(
        lambda env: numbers(env).map(raising(asyncio.CancelledError)), "CancelledError: ", "Map"
    ),
    "generator exit": Mistake(
        lambda env: numbers(env).map(raising(GeneratorExit)), "GeneratorExit: ", "Map"
    ),
    "generator exit in flat_map": Mistake(
        lambda env: numbers(env).flat_map(raising(GeneratorExit)), "GeneratorExit: ", "FlatMap"
    ),
    # -- messages and values of several lines, or of none
    "message begins with empty lines": Mistake(
        lambda env: numbers(env).map(raising(ValueError("\n\n second\nthird"))),
        "ValueError: second (in",
        "Map",
    ),
    "message raises": Mistake(
        lambda env: numbers(env).map(raising(Unspeakable)),
        "Unspeakable: its __str__ raised RuntimeError (in",
        "Map",
    ),
    "record drawn in several lines": Mistake(
        lambda env: numbers(env).map(lambda n: np.zeros((2, 2)), Types.INT()),
        "RecordTypeError: record ndarray array([[0., 0.], [0., 0.]]) does not fit",
        "Map",
    ),
    "columns drawn in several lines": Mistake(
        lambda env: env.from_collection([(1,)], LONG_ROW).map_batches(
            lambda columns: pa.table(columns.to_pydict()), LONG_ROW
        ),
        "RecordTypeError: record Table pyarrow.Table t: int64",
        "Map Batches",
    ),
    # -- StopIteration, which must not be taken for the end of the rows
    "stop in map": Mistake(
        lambda env: numbers(env).map(raising(StopIteration)), "StopIteration: ", "Map"
    ),
    "stop in filter": Mistake(
        lambda env: numbers(env).filter(raising(StopIteration)), "StopIteration: ", "Filter"
    ),
    "stop in a key selector": Mistake(
        lambda env: numbers(env).key_by(raising(StopIteration)).map(lambda n: n),
        "StopIteration: ",
        KEY_BY,
    ),
    "stop in an assigner": Mistake(
        lambda env: assigned(numbers(env), Assigns(raising(StopIteration))),
        "StopIteration: ",
        TIMED,
    ),
    # -- partitioners
    "partitioner raises": Mistake(
        lambda env: numbers(env).map(abs).partition_custom(fails, abs), "ValueError: mista", "Map"
    ),
    "partitioner's key selector raises": Mistake(
        lambda env: numbers(env).map(abs).partition_custom(lambda *_: 0, fails),
        "ValueError: mistaken",
        "Map",
    ),
    "partition out of range": Mistake(
        lambda env: numbers(env).map(abs).partition_custom(lambda *_: 7, abs),
        "InvalidChannelError: the custom partitioner returned 7 for the key 1",
        "Map",
    ),
    "partition below zero": Mistake(
        lambda env: numbers(env).map(abs).partition_custom(lambda *_: -1, abs),
        "InvalidChannelError: the custom partitioner returned -1 ",
        "Map",
    ),
    "partition is no integer": Mistake(
        lambda env: numbers(env).map(abs).partition_custom(lambda *_: 0.0, abs),
        "InvalidChannelError: the custom partitioner returned 0.0 ",
        "Map",
    ),
    # -- event time
    "null event time": Mistake(
        lambda env: assigned(with_nulls(env), ColumnTimestampAssigner("t")),
        "RecordTypeError: record {'t': None} does not fit its declared type int64: column 't' is the event time",
        TIMED,
    ),
    "timestamp None": Mistake(
        lambda env: assigned(numbers(env), Assigns(lambda: None)),
        "TypeError: extract_timestamp must return epoch milliseconds as an int, but it returned NoneType",
        TIMED,
    ),
    "timestamp float": Mistake(
        lambda env: assigned(numbers(env), Assigns(lambda: 1.5)),
        "TypeError: extract_timestamp must return epoch milliseconds as an int, but it returned float 1.5",
        TIMED,
    ),
    "timestamp text": Mistake(
        lambda env: assigned(numbers(env), Assigns(lambda: "12")),
        "TypeError: extract_timestamp ",
        TIMED,
    ),
    "timer without time": Mistake(
        lambda env: keyed(env).process(SetsTimer(None)),
        "TypeError: a timer needs epoch milliseconds as an int, but was given NoneType",
        "KEYED PROCESS",
    ),
    "timer at a fraction": Mistake(
        lambda env: keyed(env).process(SetsTimer(1.5)), "TypeError: a timer needs", "KEYED PROCESS"
    ),
    # -- keys
    "key raises": Mistake(
        lambda env: numbers(env).key_by(fails).map(lambda n: n), "ValueError: mistaken", KEY_BY
    ),
    "key not hashable": Mistake(
        lambda env: numbers(env).key_by(lambda n: [n]).map(lambda n: n),
        "InvalidKeyError: the key from operator '_stream_key_by_map_operator' is a list",
        KEY_BY,
    ),
    "key None": Mistake(
        lambda env: numbers(env).key_by(lambda n: None).map(lambda n: n),
        "InvalidKeyError: the key from operator '_stream_key_by_map_operator' is null",
        KEY_BY,
    ),
    "key of another type": Mistake(
        lambda env: numbers(env).key_by(lambda n: "a", Types.INT()).map(lambda n: n),
        "RecordTypeError: record 'a'",
        KEY_BY,
    ),
    # -- folds
    "reduce to another type": Mistake(
        lambda env: keyed(env).reduce(lambda a, b: "text"),
        "TypeError: reduce must return the type of its input, TupleTypeInfo(",
        "Reduce",
    ),
    "reduce to nothing": Mistake(
        lambda env: keyed(env).reduce(lambda a, b: None),
        "TypeError: reduce must return the combined value, but it returned None",
        "Reduce",
    ),
    "window reduce to another type": Mistake(
        lambda env: windowed(env).reduce(lambda a, b: "text"),
        "TypeError: reduce must return the type of its input, TupleTypeInfo(",
        "TumblingEventTimeWindows",
    ),
    "aggregate to nothing": Mistake(
        lambda env: windowed(env).aggregate(Forgets(), output_type=Types.INT()),
        "TypeError: AggregateFunction.add must return the accumulator, but it returned None",
        "TumblingEventTimeWindows",
    ),
    # -- state
    "state of another type": Mistake(
        lambda env: keyed(env).process(KeepsText()),
        "StateAccessError: state 'count' cannot hold 'text': it is declared as Integer",
        "KEYED PROCESS",
    ),
    # -- records that no channel can hold
    "record too large": Mistake(
        lambda env: numbers(env).map(lambda n: bytes(60_000_000)).rebalance().map(len),
        "RecordTooLargeError: a record of 6",
        "Map",
    ),
    "record of a collection too large": Mistake(
        lambda env: env.from_collection([bytes(60_000_000)]).rebalance().map(len),
        "RecordTooLargeError: a record of 6",
        "Source: Collection Source",
    ),
    # -- results
    "map to another type": Mistake(
        lambda env: numbers(env).map(lambda n: "text", Types.INT()),
        "RecordTypeError: record 'text'",
        "Map",
    ),
    "flat_map to another type": Mistake(
        lambda env: numbers(env).flat_map(lambda n: ["text"], Types.INT()),
        "RecordTypeError: record 'text'",
        "FlatMap",
    ),
    "process to another type": Mistake(
        lambda env: numbers(env).process(GivesText(), Types.INT()),
        "RecordTypeError: record 'text'",
        "PROCESS",
    ),
    "side output of another type": Mistake(
        lambda env: numbers(env).process(GivesText()).get_side_output(SIDE),
        "RecordTypeError: record 'text'",
        "PROCESS",
    ),
    "flat_map to one value": Mistake(
        lambda env: numbers(env).flat_map(lambda n: n),
        "TypeError: flat_map must return an iterable",
        "FlatMap",
    ),
    "generator where map gives one value": Mistake(
        lambda env: numbers(env).map(lambda n: yields(n)),
        "TypeError: map must return a value, but it is a generator",
        "Map",
    ),
    "generator where reduce combines": Mistake(
        lambda env: untyped(env).reduce(lambda a, b: yields(a)),
        "TypeError: reduce must return a value, but it is a generator",
        "Reduce",
    ),
    "coroutine where map gives one value": Mistake(
        lambda env: env.from_collection([1]).map(waits),
        "TypeError: map must return a value, but it is 'async def'",
        "Map",
    ),
    "generator where filter answers": Mistake(
        lambda env: numbers(env).filter(lambda n: yields(n)),
        "TypeError: filter must return a value, but it is a generator",
        "Filter",
    ),
}


def raising(error: BaseException | type[BaseException]) -> Callable[..., Any]:
    def function(*_: Any) -> Any:
        raise error

    return function


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_fails_its_job_and_nothing_else(
    env: StreamExecutionEnvironment, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    mistake = MISTAKES[name]
    env.set_parallelism(1)
    mistake.build(env).print()
    with pytest.raises(JobExecutionError) as caught:
        env.execute(name)
    first_line = str(caught.value).splitlines()[0]
    assert first_line.startswith(mistake.cause)
    place = rf"\(in operator '{re.escape(mistake.operator)}', {re.escape(__file__)}, line \d+\)$"
    assert re.search(place, first_line), first_line

    healthy = StreamExecutionEnvironment.get_execution_environment()
    healthy.set_parallelism(1)
    capfd.readouterr()
    healthy.from_collection([1, 2], Types.INT()).map(lambda n: n * 2).print()
    healthy.execute("healthy")
    assert capfd.readouterr().out.split() == ["2", "4"]


@pytest.mark.parametrize(
    ("name", "cause"),
    [("nowhere.txt", "SourcePathNotFoundError: "), ("latin.txt", "CharsetError: the file ")],
)
def test_a_file_that_cannot_be_read_is_told_with_operator_and_line(
    env: StreamExecutionEnvironment, tmp_path: Path, name: str, cause: str
) -> None:
    (tmp_path / "latin.txt").write_bytes(b"Jos\xe9\n")
    source = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(tmp_path / name)
    ).build()
    if name == "nowhere.txt":
        # A job with checkpoints restarts without end, but for what no restart mends.
        env.enable_checkpointing(1000)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "names").print()
    with pytest.raises(JobExecutionError) as caught:
        env.execute(name)
    first_line = str(caught.value).splitlines()[0]
    assert first_line.startswith(cause)
    assert str(tmp_path / name) in first_line
    place = rf"\(in operator 'Source: names', {re.escape(__file__)}, line \d+\)$"
    assert re.search(place, first_line), first_line
