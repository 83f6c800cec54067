"""Runs one query: `python -m benchmarks.nexmark.program q1 DIRECTORY [--out DIR] [--local]`.

On two TaskManagers that Spark hosts, with exactly-once checkpoints every second; `--local` takes a cluster within this
process instead. Without `--out` results are thrown away, and the query runs twice: the first time starts TaskManagers
and loads libraries. Prints one JSON line of the last run: input rows, milliseconds from submission to the end of the
job as the JobMaster says; and, of a local cluster, whose work is all in this process, its processor seconds.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from benchmarks.nexmark.files import row_counts
from benchmarks.nexmark.peers.measure import CHECKPOINT_VARIABLE
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.streams import EventStreams
from headrace import StreamExecutionEnvironment
from headrace.common import Configuration
from headrace.connectors.files.formats.stream_formats import ParquetBulkWriters
from headrace.connectors.files.sink.file_sink import FileSink
from headrace.functions.sink import DiscardingSink
from headrace.testing.minicluster_executor import MiniClusterExecutor

TASK_MANAGERS = 2


def run_query(name: str, directory: Path, out: Path | None) -> dict[str, Any]:
    """Run a query to its end on the active executor; return its figures."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(TASK_MANAGERS)
    query = QUERIES[name]
    with checkpoints(env):
        results = query.build(EventStreams(env, directory))
        if out is None:
            sink: Any = DiscardingSink()
        else:
            writers = ParquetBulkWriters.for_row_type()
            sink = FileSink.for_bulk_format(str(out), writers).build()
        results.sink_to(sink)
        client = env.execute_async(f"nexmark {name}")
        result = client.get_job_execution_result().result()
        taken = client.get_job_details().result().checkpoints.counts.completed
    counts = row_counts(directory)
    return {
        "query": name,
        "input_rows": sum(counts[kind] for kind in query.reads),
        "net_runtime_ms": result.get_net_runtime(),
        "checkpoints": taken,
    }


@contextmanager
def checkpoints(env: StreamExecutionEnvironment) -> Generator[None]:
    """Have the job take exactly-once checkpoints every second, or as often as CHECKPOINT_VARIABLE says."""
    with tempfile.TemporaryDirectory() as directory:
        env.enable_checkpointing(int(os.environ.get(CHECKPOINT_VARIABLE, 1000)))
        configuration = Configuration()
        configuration.set_string("execution.checkpointing.dir", f"file://{directory}")
        env.configure(configuration)
        yield


def main() -> None:
    """Run a query and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("query", choices=sorted(QUERIES))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--local", action="store_true")
    arguments = parser.parse_args()
    if not row_counts(arguments.directory):
        parser.error(
            f"{arguments.directory} holds no events: python -m benchmarks.nexmark.files --help"
        )
    cluster = MiniClusterExecutor(slot_count=TASK_MANAGERS) if arguments.local else nullcontext()
    with cluster:
        if arguments.out is None:
            run_query(arguments.query, arguments.directory, None)
        cpu_started = time.process_time()
        figures = run_query(arguments.query, arguments.directory, arguments.out)
        if arguments.local:
            figures["cpu_seconds"] = round(time.process_time() - cpu_started, 2)
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
