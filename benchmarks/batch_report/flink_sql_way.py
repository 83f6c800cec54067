"""Flink's SQL in BATCH mode, for queries without a Python function: all of it runs in the JVM.

Its input lies in memory as for `pyflink_way`. The time goes from the first running task to the end of the job.
"""

import csv
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from benchmarks.batch_report.queries import FIRST_ORDER_DAY, QUERIES, SHIPPED_UNTIL, SIZE_MS
from benchmarks.batch_report.way import way_main
from benchmarks.nexmark.peers.flink_cluster import FlinkCluster
from benchmarks.nexmark.peers.flink_sql import answer_job_graph

NO_EVENT_TIME: Final = "rowtime"
ADAPTIVE_JOINS: Final = (
    "table.optimizer.adaptive-broadcast-join.strategy",
    "table.optimizer.skewed-join-optimization.strategy",
)
"""Joins that Flink chooses as the job runs. They need a job that is planned in the cluster; ours is in the client."""
_BEGIN: Final = f"date_time - MOD(date_time, {SIZE_MS})"
STATEMENTS: Final = {
    "highest": (
        "begins BIGINT, price BIGINT",
        f"SELECT {_BEGIN}, MAX(price) FROM bid GROUP BY {_BEGIN}",
    ),
    "newcomers": (
        "id BIGINT, name STRING, begins BIGINT",
        f"""
        SELECT newcomers.id, newcomers.name, newcomers.begins
        FROM (SELECT id, name, {_BEGIN} AS begins FROM person) AS newcomers
        JOIN (SELECT DISTINCT seller, {_BEGIN} AS begins FROM auction) AS sellers
            ON newcomers.id = sellers.seller AND newcomers.begins = sellers.begins
        """,
    ),
    "pricing": (
        "status BIGINT, quantity BIGINT, price BIGINT, reduced BIGINT, charged BIGINT, items BIGINT",
        f"""
        SELECT status, SUM(quantity), SUM(price), SUM(price * (100 - discount)),
            SUM(price * (100 - discount) * (100 + tax)), COUNT(*)
        FROM item WHERE shipped <= {SHIPPED_UNTIL} GROUP BY status
        """,
    ),
    "priorities": (
        "priority BIGINT, turnover BIGINT, items BIGINT",
        f"""
        SELECT priority, SUM(price * (100 - discount)), COUNT(*)
        FROM item JOIN `order` ON item.`order` = `order`.id
        WHERE `day` < {FIRST_ORDER_DAY} GROUP BY priority
        """,
    ),
}
"""By query: the columns of its answer, and the statement."""


def build(cluster: FlinkCluster, query: str, directory: Path, out: Path | None) -> Any:
    """Return the job of a query, whose answer goes to files below `out`, or nowhere."""
    cluster.configuration.set_string("execution.runtime-mode", "BATCH")
    for strategy in ADAPTIVE_JOINS:
        cluster.configuration.set_string(strategy, "none")
    env, tables = cluster.table_environment()
    for kind, columns in QUERIES[query].reads.items():
        cluster.create_table(tables, kind, directory / kind, columns, NO_EVENT_TIME)
    return answer_job_graph(env, tables, *STATEMENTS[query], out)


def main() -> None:
    """Run a query."""
    with FlinkCluster() as cluster, tempfile.TemporaryDirectory() as scratch:

        def collect(query: str, directory: Path) -> Iterable[tuple[Any, ...]]:
            out = Path(scratch) / query
            cluster.run_batch(build(cluster, query, directory, out))
            for file in filter(Path.is_file, out.rglob("*")):
                with file.open(newline="") as lines:
                    yield from map(tuple, csv.reader(lines))

        def discard(query: str, directory: Path) -> float:
            return cluster.run_batch(build(cluster, query, directory, None))

        way_main(collect, discard)


if __name__ == "__main__":
    main()
