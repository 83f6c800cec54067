"""`taskmanager.memory.process.size` is the one number from which a TaskManager on Spark has its parts and its limit."""

from pathlib import Path

import pytest

from tests.spark.programs import Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PROGRAM = """
from headrace.common import Types
from headrace.core.errors import JobExecutionError
from headrace.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from headrace.state.rocksdb.database import shared_memory_usage
from headrace.datastream.state import ValueStateDescriptor


class TellBound(KeyedProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        self.seen.update(value)
        yield f"ROCKSDB {shared_memory_usage()[1]}"


def grow(number):
    held = []
    while True:
        held.append(b"x" * (4 << 20))


env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
numbers = env.from_collection([1], type_info=Types.LONG())
numbers.key_by(lambda n: n).process(TellBound(), output_type=Types.STRING()).print()
env.execute("keyed")
numbers.map(grow, output_type=Types.LONG()).print()
try:
    env.execute("growing")
except JobExecutionError as error:
    print("GROWING", " ".join(str(error).split()))
"""


def test_the_size_of_a_process_bounds_rocksdb_and_the_worker_and_is_logged_in_parts(
    tmp_path: Path, started: list[Program]
) -> None:
    logs = tmp_path / "logs"
    settings = {
        "taskmanager.memory.process.size": "768 mb",
        "state.backend.type": "rocksdb",
        "env.log.dir": str(logs),
    }
    given = [word for pair in settings.items() for word in ("-D", "=".join(pair))]
    program = headrace_run(tmp_path, PROGRAM, "--master", "local[2]", *given)
    started.append(program)
    assert program.wait(250) == 0, program.report()
    told = dict(line.strip().partition(" ")[::2] for line in program.out)
    # 0.4 of what the overhead of 192 mb leaves.
    assert told["ROCKSDB"] == str(int((768 - 192 << 20) * 0.4)), program.report()
    limit = "may hold only 805.3 MB ('headrace.taskmanager.memory.limit')"
    assert limit in told["GROWING"], program.report()
    assert "('taskmanager.memory.process.size')" in told["GROWING"], "what to do"
    logged = "".join(path.read_text() for path in logs.rglob("taskmanager-*.log"))
    parts = (
        "memory of 768 mb: tasks 25 mb, their libraries 0 mb, framework 128 + 128 mb, network 64 mb, managed 230 mb, "
        "overhead 192 mb"
    )
    assert parts in logged, logged
    assert "ends once it holds more than 805.3 MB of memory" in logged
    program.assert_nothing_is_left()
