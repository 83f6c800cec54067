"""DuckDB as a peer: the batch ceiling. Two threads, the Parquet files as views; the answer is kept as a table."""

from pathlib import Path

from benchmarks.nexmark.answers import ANSWERS, open_events
from benchmarks.nexmark.peers.measure import Figures, Measured, peer_main


def run(query: str, events: Path, out: Path | None) -> Figures:
    """Answer a query; connections and views are there before."""
    connection = open_events(events)
    with Measured() as measured:
        connection.execute(f"CREATE TABLE answer AS {ANSWERS[query][0]}")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        connection.execute(f"COPY answer TO '{out}/part-0.parquet'")
    connection.close()
    return measured.figures()


if __name__ == "__main__":
    peer_main(run, ANSWERS, ["duckdb"])
