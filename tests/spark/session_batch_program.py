"""A program in BATCH mode that a session runs: what its functions find of files that travel with it.

Arguments: the folder with its files, and the folder that its lines are written to.
"""

import os
import sys
from pathlib import Path

from headrace.common import Encoder, Types
from headrace.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from headrace.datastream.connectors.file_system import FileSink
from headrace.spark.options import WORKERS_VARIABLE

COUNT = 300_000
FILES, LINES = Path(sys.argv[1]), sys.argv[2]


class Find(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        files = runtime_context.get_distributed_cache()
        self._model = Path(files.get_file("model"), "weights.txt").read_text()
        self._rates = Path(files.get_file("rates")).read_text()

    def map(self, value: int) -> str:
        import headrace_test_pricing  # pyright: ignore[reportMissingImports]
        import rules  # pyright: ignore[reportMissingImports]

        price: str = headrace_test_pricing.price(value)
        return f"{price} {rules.NAME} {self._model} {self._rates},{os.environ[WORKERS_VARIABLE]}"


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.add_python_file(str(FILES / "rules.py"))
env.add_python_archive(str(FILES / "model.zip"), "model")
env.register_cached_file(str(FILES / "rates.csv"), "rates")
env.set_python_requirements(str(FILES / "requirements.txt"), str(FILES / "wheels"))

numbers = env.from_collection([1, 2], type_info=Types.LONG())
with numbers.map(Find(), output_type=Types.STRING()).execute_and_collect() as found:
    lines = [line.partition(",") for line in found]
    print("FOUND", sorted(line for line, _, _ in lines))
    workers = {name for _, _, name in lines}

# More than fits a message: functions and collection are brought by themselves.
many = env.from_collection(list(range(COUNT)), type_info=Types.LONG())
pair = Types.TUPLE([Types.LONG(), Types.LONG()])
counted = (
    many.map(lambda n: (n % 3, n), output_type=pair)
    .key_by(lambda one: one[0], Types.LONG())
    .reduce(lambda a, b: (a[0], a[1] + b[1]))
)
sink = FileSink.for_row_format(LINES, Encoder.simple_string_encoder()).build()
counted.map(str, output_type=Types.STRING()).sink_to(sink)
result = env.execute("sums")
print("SUMS", result.get_job_id() is not None)

again = numbers.map(lambda _n: os.environ.get(WORKERS_VARIABLE, ""), output_type=Types.STRING())
with again.execute_and_collect() as named:
    print("WORKERS", *(workers | set(named)))

try:
    env.from_collection([0], type_info=Types.LONG()).map(lambda n: 1 // n).print()
    env.execute("fails")
except Exception as error:
    print("ERROR", str(error).replace("\n", " "))
