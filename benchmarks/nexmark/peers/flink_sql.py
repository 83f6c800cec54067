"""Flink in its JVM, by SQL: window functions, hashmap state, exactly-once checkpoints, two slots.

The best form of each query was taken, see FORMS. Its clock starts when all tasks run, its second job in one JVM.
Results go to `blackhole`; those to be compared to CSV files.
"""

from pathlib import Path
from typing import Any, Final

from benchmarks.nexmark.peers.flink_cluster import FlinkCluster
from benchmarks.nexmark.peers.measure import Figures, peer_main

_TUMBLE: Final = "TABLE(TUMBLE(TABLE {kind}, DESCRIPTOR(date_time), INTERVAL '10' SECOND))"
_BIDS: Final = "auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP(3)"

# By query: the columns of its answer, and the statement.
STATEMENTS: Final[dict[str, tuple[str, str]]] = {
    "q0": (_BIDS, "SELECT auction, bidder, price, date_time FROM bid"),
    "q1": (
        "auction BIGINT, bidder BIGINT, price DOUBLE, date_time TIMESTAMP(3)",
        "SELECT auction, bidder, CAST(price AS DOUBLE) * 0.908e0, date_time FROM bid",
    ),
    "q2": (
        "auction BIGINT, price BIGINT",
        "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    ),
    "q3": (
        "name STRING, city STRING, state STRING, id BIGINT",
        """
        SELECT name, city, state, auction.id FROM auction JOIN person ON seller = person.id
        WHERE category = 10 AND state IN ('or', 'id', 'ca')
        """,
    ),
    "q5": (
        "auction BIGINT, begins TIMESTAMP(3), ends TIMESTAMP(3), bids BIGINT",
        """
        WITH counts AS (
            SELECT auction, window_start, window_end, COUNT(*) AS bids FROM TABLE(HOP(
                TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
            GROUP BY auction, window_start, window_end
        ), most AS (
            SELECT window_start, window_end, MAX(bids) AS bids FROM counts
            GROUP BY window_start, window_end
        )
        SELECT counts.auction, counts.window_start, counts.window_end, counts.bids
        FROM counts JOIN most ON counts.window_start = most.window_start
            AND counts.window_end = most.window_end AND counts.bids = most.bids
        """,
    ),
    "q7": (
        _BIDS,
        f"""
        SELECT auction, bidder, price, date_time FROM (
            SELECT auction, bidder, price, date_time, ROW_NUMBER() OVER (
                PARTITION BY window_start, window_end ORDER BY price DESC) AS place
            FROM {_TUMBLE.format(kind="bid")}
        ) WHERE place = 1
        """,
    ),
    "q7max": (
        "begins TIMESTAMP(3), ends TIMESTAMP(3), price BIGINT",
        f"""
        SELECT window_start, window_end, MAX(price) FROM {_TUMBLE.format(kind="bid")}
        GROUP BY window_start, window_end
        """,
    ),
    "q8": (
        "id BIGINT, name STRING, begins TIMESTAMP(3)",
        f"""
        SELECT newcomers.id, newcomers.name, newcomers.window_start
        FROM (SELECT * FROM {_TUMBLE.format(kind="person")}) AS newcomers
        JOIN (
            SELECT seller, window_start, window_end FROM {_TUMBLE.format(kind="auction")}
            GROUP BY seller, window_start, window_end
        ) AS sellers ON newcomers.id = sellers.seller
            AND newcomers.window_start = sellers.window_start
            AND newcomers.window_end = sellers.window_end
        """,
    ),
    "q11": (
        "bidder BIGINT, begins TIMESTAMP(3), ends TIMESTAMP(3), bids BIGINT",
        """
        SELECT bidder, window_start, window_end, COUNT(*) FROM TABLE(SESSION(
            TABLE bid PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
        GROUP BY bidder, window_start, window_end
        """,
    ),
}


def sink(out: Path | None) -> str:
    """Return the options of the table that takes the answer."""
    if out is None:
        return "'connector' = 'blackhole'"
    return f"'connector' = 'filesystem', 'path' = '{out.absolute().as_uri()}', 'format' = 'csv'"


def answer_job_graph(env: Any, tables: Any, columns: str, statement: str, out: Path | None) -> Any:
    """Return the job that puts the rows of a statement into a table of these columns, see `sink`."""
    tables.execute_sql(f"CREATE TEMPORARY TABLE answer ({columns}) WITH ({sink(out)})")
    statements = tables.create_statement_set()
    statements.add_insert_sql(f"INSERT INTO answer {statement}")
    statements.attach_as_datastream()
    return env._j_stream_execution_environment.getStreamGraph().getJobGraph()


def build(cluster: FlinkCluster, query: str, events: Path, out: Path | None) -> Any:
    """Return the job of a query."""
    env, tables = cluster.table_environment()
    cluster.create_tables(tables, query, events, event_time="date_time")
    return answer_job_graph(env, tables, *STATEMENTS[query], out)


def main() -> None:
    """Run a query."""
    with FlinkCluster() as cluster:

        def run(query: str, events: Path, out: Path | None) -> Figures:
            return cluster.run(build(cluster, query, events, out))

        peer_main(run, STATEMENTS, ["apache-flink"])


if __name__ == "__main__":
    main()
