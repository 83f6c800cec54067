"""One DataStream program for two engines: a keyed per-record Python function with value state.

`python keyed_count.py pyflink|headrace RECORDS KEYS PARALLELISM` prints each key's final count, as `(key,count)`, and
one JSON line with records and milliseconds. Whoever runs it adds the counts up: their sum must be the number of
records, a multiple of KEYS. Only the package name differs between the engines.
"""

import importlib
import json
import sys


def main(package: str, record_count: int, key_count: int, parallelism: int) -> None:
    """Run the job on `package` and print its figures."""
    common = importlib.import_module(f"{package}.common")
    datastream = importlib.import_module(f"{package}.datastream")
    state = importlib.import_module(f"{package}.datastream.state")
    sequence = importlib.import_module(f"{package}.datastream.connectors.number_seq")
    types = common.Types

    class Count(datastream.KeyedProcessFunction):
        """Counts per key; gives (key, count) once the key's last record has come."""

        def open(self, runtime_context: object) -> None:
            descriptor = state.ValueStateDescriptor("count", types.LONG())
            self.count = runtime_context.get_state(descriptor)

        def process_element(self, value: object, ctx: object) -> object:
            count = (self.count.value() or 0) + 1
            self.count.update(count)
            if count == record_count // key_count:
                yield value[0], count

    environment = datastream.StreamExecutionEnvironment.get_execution_environment()
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
    print(json.dumps({"records": record_count, "net_runtime_ms": result.get_net_runtime()}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
