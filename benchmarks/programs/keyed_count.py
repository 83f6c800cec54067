"""One DataStream program for two engines: a keyed per-record Python function with value state.

`python keyed_count.py pyflink|headrace RECORDS KEYS PARALLELISM DIRECTORY` prints each key's final count, as
`(key,count)`, and one JSON line with records and milliseconds. Whoever runs it adds the counts up: their sum must be
the number of records, a multiple of KEYS. Checkpoints are taken every second below DIRECTORY, and stay there while the
job runs; `processes` says in how many processes beside this one the function ran. The engines' programs differ in the
package's name, and in that PyFlink is told to keep the state of all keys in its cache.
"""

import importlib
import json
import os
import sys
from pathlib import Path

CHECKPOINT_INTERVAL_MS = 1000


def main(
    package: str, record_count: int, key_count: int, parallelism: int, directory: Path
) -> None:
    """Run the job on `package` and print its figures."""
    common = importlib.import_module(f"{package}.common")
    datastream = importlib.import_module(f"{package}.datastream")
    state = importlib.import_module(f"{package}.datastream.state")
    sequence = importlib.import_module(f"{package}.datastream.connectors.number_seq")
    types = common.Types

    class Count(datastream.KeyedProcessFunction):
        """Counts per key; gives (key, count) once the key's last record has come."""

        def open(self, runtime_context: object) -> None:
            (directory / f"worker-{os.getpid()}").touch()
            descriptor = state.ValueStateDescriptor("count", types.LONG())
            self.count = runtime_context.get_state(descriptor)

        def process_element(self, value: object, ctx: object) -> object:
            count = (self.count.value() or 0) + 1
            self.count.update(count)
            if count == record_count // key_count:
                yield value[0], count

    configuration = common.Configuration()
    configuration.set_string("execution.checkpointing.dir", f"file://{directory}")
    # So that none is deleted before it was counted.
    configuration.set_string("execution.checkpointing.num-retained", "100000")
    if package == "pyflink":
        configuration.set_string("python.execution-mode", "process")
        configuration.set_string("python.state.cache-size", str(max(1000, key_count)))
    environment = datastream.StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.enable_checkpointing(CHECKPOINT_INTERVAL_MS)
    environment.set_parallelism(parallelism)
    numbers = environment.from_source(
        sequence.NumberSequenceSource(0, record_count - 1),
        common.WatermarkStrategy.no_watermarks(),
        "numbers",
        types.LONG(),
    )
    pair = types.TUPLE([types.LONG(), types.LONG()])
    counts = (
        numbers.map(lambda number: (number % key_count, number), output_type=pair)
        .key_by(lambda value: value[0], key_type=types.LONG())
        .process(Count(), output_type=pair)
        .map(lambda value: value, output_type=pair)
    )
    counts.print()
    result = environment.execute("keyed count")
    workers = {file.name for file in directory.glob("worker-*")} - {f"worker-{os.getpid()}"}
    figures = {"records": record_count, "net_runtime_ms": result.get_net_runtime()}
    print(json.dumps(figures | {"processes": len(workers)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
