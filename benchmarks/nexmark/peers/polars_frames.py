"""polars as a peer: a batch ceiling. Lazy frames over the Parquet files, streaming engine, two threads.

The answer is kept as a frame.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

os.environ["POLARS_MAX_THREADS"] = "2"  # read when polars is imported

import polars as pl  # pyright: ignore[reportMissingImports]

from benchmarks.nexmark.peers.measure import Figures, Measured, peer_main

SLIDE_MS: Final = 2_000
SIZE_MS: Final = 10_000
Scan = Callable[[str], Any]


def _window(name: str = "date_time", size_ms: int = SIZE_MS) -> Any:
    return pl.col(name) // size_ms * size_ms


def q0(scan: Scan) -> Any:
    return scan("bid").select("auction", "bidder", "price", "date_time")


def q1(scan: Scan) -> Any:
    euros = pl.col("price").cast(pl.Float64) * 0.908
    return scan("bid").select("auction", "bidder", euros, "date_time")


def q2(scan: Scan) -> Any:
    return scan("bid").select("auction", "price").filter(pl.col("auction") % 123 == 0)


def q3(scan: Scan) -> Any:
    auctions = scan("auction").filter(pl.col("category") == 10).select("id", "seller")
    persons = scan("person").filter(pl.col("state").is_in(["or", "id", "ca"]))
    joined = auctions.join(
        persons.select("id", "name", "city", "state"), left_on="seller", right_on="id"
    )
    return joined.select("name", "city", "state", "id")


def q5(scan: Scan) -> Any:
    """Counts bids once for each pane of two seconds, which five windows share."""
    pane = pl.col("date_time") // SLIDE_MS
    bids = pl.len().cast(pl.Int64).alias("bids")
    panes = scan("bid").group_by("auction", pane.alias("pane")).agg(bids)
    counts = pl.concat(
        panes.select("auction", (pl.col("pane") - back).alias("window"), "bids")
        for back in range(SIZE_MS // SLIDE_MS)
    )
    counts = counts.group_by("auction", "window").agg(pl.col("bids").sum())
    begin = pl.col("window") * SLIDE_MS
    return counts.filter(pl.col("bids") == pl.col("bids").max().over("window")).select(
        "auction", begin.alias("begin"), (begin + SIZE_MS).alias("end"), "bids"
    )


def q7(scan: Scan) -> Any:
    bids = scan("bid").select("auction", "bidder", "price", "date_time", _window().alias("begin"))
    best = bids.group_by("begin").agg(pl.col("price").max())
    return bids.join(best, on=["begin", "price"]).select("auction", "bidder", "price", "date_time")


def q7max(scan: Scan) -> Any:
    best = scan("bid").group_by(_window().alias("begin")).agg(pl.col("price").max())
    return best.select("begin", (pl.col("begin") + SIZE_MS).alias("end"), "price")


def q8(scan: Scan) -> Any:
    persons = scan("person").select("id", "name", _window().alias("begin"))
    sellers = scan("auction").select(pl.col("seller").alias("id"), _window().alias("begin"))
    return persons.join(sellers.unique(), on=["id", "begin"]).select("id", "name", "begin")


def q11(scan: Scan) -> Any:
    """Puts buckets as long as the gap in order, not bids: those of one bucket and bidder are of one session."""
    time = pl.col("date_time")
    buckets = scan("bid").group_by("bidder", (time // SIZE_MS).alias("bucket"))
    buckets = buckets.agg(
        time.min().alias("earliest"), time.max().alias("latest"), pl.len().alias("bids")
    ).sort("bidder", "bucket")
    gap = pl.col("earliest") - pl.col("latest").shift()
    is_next = (pl.col("bidder") == pl.col("bidder").shift()) & (gap <= SIZE_MS)
    marked = buckets.with_columns((~is_next.fill_null(False)).cum_sum().alias("session"))
    sessions = marked.group_by("session").agg(
        pl.col("bidder").first(),
        pl.col("earliest").min().alias("begin"),
        (pl.col("latest").max() + SIZE_MS).alias("end"),
        pl.col("bids").sum().cast(pl.Int64),
    )
    return sessions.select("bidder", "begin", "end", "bids")


QUERIES: Final = {
    "q0": q0,
    "q1": q1,
    "q2": q2,
    "q3": q3,
    "q5": q5,
    "q7": q7,
    "q7max": q7max,
    "q8": q8,
    "q11": q11,
}


def run(query: str, events: Path, out: Path | None) -> Figures:
    """Answer a query."""
    with Measured() as measured:
        frame = QUERIES[query](lambda kind: pl.scan_parquet(events / kind / "*.parquet"))
        answer = frame.collect(engine="streaming")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        answer.write_parquet(out / "part-0.parquet")
    return measured.figures()


if __name__ == "__main__":
    peer_main(run, QUERIES, ["polars"])
