"""The state of a job on TaskManager processes of Spark, read by its program while records keep coming."""

import json
import sys
from pathlib import Path

import pytest

from headrace.task.chain.queryable_state import MAIL_ROWS_MAX
from tests.spark.programs import Program, start

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

KEY_COUNT = 20_000
COUNTING = f"""
import json
from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.checkpoint.errors import SubtaskNotReadableError
from headrace.datastream import KeyedProcessFunction
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield value


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.from_source(NumberSequenceSource(0, 10**12), WatermarkStrategy.no_watermarks(), "numbers")
keyed = numbers.key_by(lambda n: n % {KEY_COUNT}, key_type=Types.LONG())
keyed.process(Count(), output_type=Types.LONG()).uid("counter").filter(lambda n: n < 0).print()
client = env.execute_async("counting")
state, total = client.state(), 0
while total < {KEY_COUNT}:
    try:
        figures = state.figures("counter")
    except SubtaskNotReadableError:
        continue
    total = sum(one.row_count for one in figures.states)
whole = state.live("counter", "count", row_limit={KEY_COUNT})
one = state.live("counter", "count", keys=[7]).rows.to_pylist()
print("READ", json.dumps({{
    "keys": sorted(whole.rows.column("key").to_pylist()) == list(range({KEY_COUNT})),
    "is_partial": whole.is_partial,
    "task_managers": len({{one.resource_id for one in whole.subtasks}}),
    "mails": [(one.row_count, one.mail_count, one.mail_row_count_max) for one in whole.subtasks],
    "before": dict(zip(whole.rows.column("key").to_pylist(), whole.rows.column("value").to_pylist()))[7],
    "after": one[0]["value"],
}}))
client.cancel().result()
"""


def test_two_processes_are_read_while_records_keep_coming(
    tmp_path: Path, started: list[Program]
) -> None:
    file = tmp_path / "counting.py"
    file.write_text(COUNTING)
    program = start([sys.executable, str(file)], tmp_path)
    started.append(program)
    assert program.wait() == 0, program.report()
    (line,) = [line for line in program.out if line.startswith("READ ")]
    read = json.loads(line.removeprefix("READ "))
    assert (read["keys"], read["is_partial"], read["task_managers"]) == (True, False, 2)
    for row_count, mail_count, largest in read["mails"]:
        assert largest <= MAIL_ROWS_MAX
        assert mail_count > row_count / MAIL_ROWS_MAX
    assert read["after"] >= read["before"] > 0
