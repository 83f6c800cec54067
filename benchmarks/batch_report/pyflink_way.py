"""PyFlink's DataStream API in BATCH mode, its functions in the execution mode that PYFLINK_MODE_VARIABLE names.

The JVM reads Arrow batches that lie in its memory, made before the job began; two subtasks run the functions.
The time goes from the first running task to the end of the job.
"""

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from pyflink.common import Types  # pyright: ignore[reportMissingImports]
from pyflink.datastream import KeyedProcessFunction  # pyright: ignore[reportMissingImports]
from pyflink.datastream.state import ValueStateDescriptor  # pyright: ignore[reportMissingImports]
from pyflink.table import ChangelogMode, DataTypes, Schema  # pyright: ignore[reportMissingImports]

from benchmarks.batch_report.queries import PYFLINK_MODE_VARIABLE, QUERIES, in_euros, next_count
from benchmarks.batch_report.way import way_main
from benchmarks.nexmark.peers.flink_cluster import FlinkCluster
from benchmarks.nexmark.peers.pyflink_datastream import job_graph

# Where client and cluster share a machine, PyFlink would run the workers of process mode as threads of the client.
os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112 (it is spelt so)
NO_EVENT_TIME: Final = "rowtime"
END_MS: Final = 2**62
"""A time that comes with the end of input."""


class Expensive(KeyedProcessFunction):
    """Counts the high prices of a bidder."""

    def open(self, runtime_context: Any) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> None:
        count = self._count.value()
        if count is None:
            ctx.timer_service().register_event_time_timer(END_MS)
            count = 0
        self._count.update(next_count(count, value[1]))

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), self._count.value() or 0


def currency(bids: Any) -> Any:
    euros = Types.TUPLE([Types.LONG(), Types.LONG(), Types.DOUBLE(), Types.LONG()])
    return bids.map(lambda bid: (bid[0], bid[1], in_euros(bid[2]), bid[3]), euros)


def expensive(bids: Any) -> Any:
    keyed = bids.key_by(lambda bid: bid[0], Types.LONG())
    return keyed.process(Expensive(), Types.TUPLE([Types.LONG(), Types.LONG()]))


BUILDS: Final = {"currency": currency, "expensive": expensive}


def build(cluster: FlinkCluster, query: str, directory: Path, out: Path | None) -> Any:
    """Return the job of a query."""
    cluster.configuration.set_string("execution.runtime-mode", "BATCH")
    cluster.configuration.set_string("python.execution-mode", os.environ[PYFLINK_MODE_VARIABLE])
    env, tables = cluster.table_environment()
    env.set_python_executable(sys.executable)
    columns = QUERIES[query].reads["bid"]
    cluster.create_table(tables, "bid", directory / "bid", columns, NO_EVENT_TIME)
    schema = Schema.new_builder()
    for name in columns:
        schema.column(name, DataTypes.BIGINT())
    bids = tables.to_changelog_stream(
        tables.from_path("bid"), schema.build(), ChangelogMode.insert_only()
    )
    return job_graph(cluster, env, BUILDS[query](bids), out)


def main() -> None:
    """Run a query."""
    with FlinkCluster() as cluster, tempfile.TemporaryDirectory() as scratch:

        def collect(query: str, directory: Path) -> Iterable[tuple[Any, ...]]:
            out = Path(scratch) / query
            cluster.run_batch(build(cluster, query, directory, out))
            for file in out.rglob("*part-*"):
                for line in file.read_text().splitlines():
                    yield tuple(
                        float(cell) if "." in cell else int(cell) for cell in line.split(",")
                    )

        def discard(query: str, directory: Path) -> float:
            return cluster.run_batch(build(cluster, query, directory, None))

        way_main(collect, discard)


if __name__ == "__main__":
    main()
