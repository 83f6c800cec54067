"""A program in BATCH mode, for tests: `batch_program.py <folder>` prints a line for each of its jobs."""

import gc
import os
import sys
from collections.abc import Iterable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from headrace.common import Encoder, Types, WatermarkStrategy
from headrace.core.errors import JobExecutionError
from headrace.datastream import (
    CoMapFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from headrace.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.state import ValueStateDescriptor

FOLDER = Path(sys.argv[1])
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)


class Count(KeyedProcessFunction):
    """Counts the rows of a key, and tells the number when the key ends."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: str, ctx: KeyedProcessFunction.Context
    ) -> Iterable[Any] | None:
        self._count.update((self._count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(1)
        return None

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[str]:
        yield f"{ctx.get_current_key()} {self._count.value()}"


class FailOnce(MapFunction):
    """Fails at the last of a subtask's records, when others have been written, unless that has happened before."""

    def map(self, value: str) -> str:
        if value.startswith("w499 "):
            try:
                os.close(os.open(FOLDER / "failed", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return value
            raise ValueError("the first attempt fails")
        return value


class Named(CoMapFunction):
    def map1(self, value: Any) -> str:
        return f"first {value}"

    def map2(self, value: Any) -> str:
        return f"second {value}"


def noted(number: int) -> int:
    with (FOLDER / "calls").open("ab") as file:
        file.write(b".")
    return number


def process_of(_: int) -> int:
    return os.getpid()


def divide(number: int) -> int:
    return 1 // number


for name in ("a", "b"):
    (FOLDER / name).write_text("".join(f"w{number}\n" for number in range(500)))
source = FileSource.for_record_stream_format(
    StreamFormat.text_line_format(), str(FOLDER / "a"), str(FOLDER / "b")
).build()
sink = FileSink.for_row_format(str(FOLDER / "out"), Encoder.simple_string_encoder()).build()
lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
counted = lines.key_by(lambda line: line, Types.STRING()).process(Count(), Types.STRING())
counted.map(FailOnce(), Types.STRING()).sink_to(sink)
client = env.execute_async("counting")
client.get_job_execution_result().result()
print("FAILED ONCE", (FOLDER / "failed").exists())
vertices = client.get_job_details().result().vertices
subtasks = [subtask for vertex in vertices for subtask in vertex.subtasks]
print(
    "TOLD",
    sorted({subtask.state.name for subtask in subtasks}),
    sorted({subtask.attempt_number for subtask in subtasks}),
    [int(vertex.metrics["numRecordsIn"]) for vertex in vertices],
)
written = [
    line
    for path in (FOLDER / "out").rglob("*")
    if path.is_file() and not path.name.startswith((".", "_"))
    for line in path.read_text().splitlines()
]
print("WRITTEN", sorted(written) == sorted(f"w{number} 2" for number in range(500)), len(written))

row = Types.ROW_NAMED(
    ["Name", "name", "day", "price"],
    [Types.STRING(), Types.STRING(), Types.SQL_DATE(), Types.BIG_DEC()],
)
rows = env.from_collection(
    [("x", None, date(2024, 2, 29), Decimal("1.50")), ("y", "z", None, None)], row
).rebalance()
with (
    rows.connect(env.from_collection([1, 2], Types.LONG()).rebalance())
    .map(Named(), Types.STRING())
    .execute_and_collect() as found
):
    for text in sorted(found):
        print("CONNECTED", text)

shared = env.from_collection(list(range(10)), Types.LONG()).map(noted, Types.LONG())
shared.rebalance().filter(lambda number: number % 2 == 0).map(
    lambda number: ("even", number)
).print()
shared.key_by(lambda number: 0).reduce(lambda a, b: a + b).map(lambda total: ("sum", total)).print()
env.execute("branching")
print("CALLED", len((FOLDER / "calls").read_bytes()))

with env.from_collection([1]).map(lambda _: gc.get_freeze_count()).execute_and_collect() as found:
    print("FROZEN", *(count > 10_000 for count in found))

processes: set[int] = set()
for _ in range(6):
    numbers = env.from_source(
        NumberSequenceSource(0, 9), WatermarkStrategy.no_watermarks(), "numbers"
    )
    with numbers.map(process_of, Types.LONG()).execute_and_collect() as found:
        processes |= set(found)
print("PROCESSES", len(processes) <= 3)

env.from_collection([5, 6]).map(lambda number: number + 1).print()
env.execute("printing")
env.from_collection([1, 0]).rebalance().map(divide).print()
try:
    env.execute("dividing")
except JobExecutionError as error:
    print("ERROR", str(error).partition("\n")[0])
