"""DuckDB as a peer: the batch ceiling. Two threads, the Parquet files as views; the answer is kept as a table.

Where there is a quicker form for the same answer than the plain one, by which all results are checked, it takes that.
"""

from pathlib import Path
from typing import Final

from benchmarks.nexmark.answers import ANSWERS, open_events
from benchmarks.nexmark.peers.measure import Figures, Measured, peer_main

QUICKER: Final = {
    # Bids are counted once for each pane of two seconds, which five windows share.
    "q5": """
        WITH panes AS (
            SELECT auction, date_time // 2000 * 2000 AS pane, count(*) AS bids FROM bid GROUP BY ALL
        ), counts AS (
            SELECT auction, pane - 2000 * back AS begin, CAST(sum(bids) AS BIGINT) AS bids
            FROM panes, range(5) AS windows(back) GROUP BY ALL
        ), most AS (
            SELECT begin, max(bids) AS bids FROM counts GROUP BY begin
        )
        SELECT auction, begin, begin + 10000, bids FROM counts JOIN most USING (begin, bids)
    """,
    # Bids of a bidder within one bucket as long as the gap are of one session, so only buckets are put in order.
    "q11": """
        WITH buckets AS (
            SELECT bidder, date_time // 10000 AS bucket, min(date_time) AS earliest,
                max(date_time) AS latest, count(*) AS bids
            FROM bid GROUP BY ALL
        ), marked AS (
            SELECT *, CASE WHEN earliest - lag(latest) OVER later <= 10000 THEN 0 ELSE 1 END AS begins
            FROM buckets WINDOW later AS (PARTITION BY bidder ORDER BY bucket)
        ), numbered AS (
            SELECT *, sum(begins) OVER (
                PARTITION BY bidder ORDER BY bucket ROWS UNBOUNDED PRECEDING
            ) AS session
            FROM marked
        )
        SELECT bidder, min(earliest), max(latest) + 10000, CAST(sum(bids) AS BIGINT)
        FROM numbered GROUP BY bidder, session
    """,
}


def run(query: str, events: Path, out: Path | None) -> Figures:
    """Answer a query; connections and views are there before."""
    connection = open_events(events)
    with Measured() as measured:
        connection.execute(f"CREATE TABLE answer AS {QUICKER.get(query, ANSWERS[query][0])}")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        connection.execute(f"COPY answer TO '{out}/part-0.parquet'")
    connection.close()
    return measured.figures()


if __name__ == "__main__":
    peer_main(run, ANSWERS, ["duckdb"])
