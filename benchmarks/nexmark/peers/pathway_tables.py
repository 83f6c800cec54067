"""pathway: tables over CSV files of the columns a query reads, in static mode, on two threads of its engine.

pathway reads no Parquet; the files are written before the clock starts, which then runs through `pw.run`. Windows are
groups of the time divided, which its engine computes without calling Python; sessions are its own. Results go to
`pw.io.null`, those to be compared to CSV files.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

os.environ["PATHWAY_THREADS"] = "2"  # read when pathway is imported

import pathway as pw  # pyright: ignore[reportMissingImports]
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.nexmark.peers.measure import (
    READS,
    TEXTS,
    Figures,
    Measured,
    peer_main,
)

SIZE_MS: Final = 10_000
SLIDE_MS: Final = 2_000
Read = Callable[[str], Any]


def q0(read: Read) -> Any:
    return read("bid")


def q1(read: Read) -> Any:
    bids = read("bid")
    return bids.select(
        bids.auction, bids.bidder, price=bids.price * 0.908, date_time=bids.date_time
    )


def q2(read: Read) -> Any:
    bids = read("bid")
    return bids.filter(bids.auction % 123 == 0)


def q3(read: Read) -> Any:
    auctions, persons = read("auction"), read("person")
    auctions = auctions.filter(auctions.category == 10)
    is_near = (persons.state == "or") | (persons.state == "id") | (persons.state == "ca")
    persons = persons.filter(is_near)
    joined = auctions.join(persons, auctions.seller == persons.number)
    return joined.select(persons.name, persons.city, persons.state, auction=auctions.number)


def q5(read: Read) -> Any:
    bids = read("bid")
    bids = bids.select(bids.auction, pane=bids.date_time // SLIDE_MS * SLIDE_MS)
    panes = bids.groupby(bids.auction, bids.pane).reduce(
        bids.auction, bids.pane, bids=pw.reducers.count()
    )
    spread = pw.Table.concat_reindex(
        *(
            panes.select(panes.auction, panes.bids, begin=panes.pane - SLIDE_MS * back)
            for back in range(SIZE_MS // SLIDE_MS)
        )
    )
    counts = spread.groupby(spread.auction, spread.begin).reduce(
        spread.auction, spread.begin, bids=pw.reducers.sum(spread.bids)
    )
    most = counts.groupby(counts.begin).reduce(counts.begin, bids=pw.reducers.max(counts.bids))
    joined = counts.join(most, counts.begin == most.begin, counts.bids == most.bids)
    return joined.select(
        counts.auction, begin=counts.begin, end=counts.begin + SIZE_MS, bids=counts.bids
    )


def q7(read: Read) -> Any:
    bids = read("bid").with_columns(begin=pw.this.date_time // SIZE_MS)
    most = bids.groupby(bids.begin).reduce(bids.begin, price=pw.reducers.max(bids.price))
    joined = bids.join(most, bids.begin == most.begin, bids.price == most.price)
    return joined.select(bids.auction, bids.bidder, bids.price, bids.date_time)


def q7max(read: Read) -> Any:
    bids = read("bid")
    bids = bids.select(bids.price, begin=bids.date_time // SIZE_MS * SIZE_MS)
    return bids.groupby(bids.begin).reduce(
        bids.begin, end=bids.begin + SIZE_MS, price=pw.reducers.max(bids.price)
    )


def q8(read: Read) -> Any:
    persons = read("person")
    persons = persons.select(
        persons.number, persons.name, begin=persons.date_time // SIZE_MS * SIZE_MS
    )
    auctions = read("auction")
    auctions = auctions.select(auctions.seller, begin=auctions.date_time // SIZE_MS * SIZE_MS)
    sellers = auctions.groupby(auctions.seller, auctions.begin).reduce(
        auctions.seller, auctions.begin
    )
    joined = persons.join(sellers, persons.number == sellers.seller, persons.begin == sellers.begin)
    return joined.select(persons.number, persons.name, persons.begin)


def q11(read: Read) -> Any:
    bids = read("bid")
    # A gap must be smaller than what is named.
    window = pw.temporal.session(max_gap=SIZE_MS + 1)
    sessions = bids.windowby(bids.date_time, window=window, instance=bids.bidder)
    return sessions.reduce(
        pw.this._pw_instance,
        begin=pw.this._pw_window_start,
        end=pw.this._pw_window_end + SIZE_MS,
        bids=pw.reducers.count(),
    )


QUERIES: Final[dict[str, Callable[[Read], Any]]] = {
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


def _named(column: str) -> str:
    """Return the name of a column here, where `id` is that of the row."""
    return "number" if column == "id" else column


def write_csv(files: Path, columns: tuple[str, ...], directory: Path) -> None:
    """Write the columns of each Parquet file as CSV."""
    directory.mkdir()
    for file in sorted(files.glob("*.parquet")):
        rows = pq.read_table(file, columns=list(columns))
        rows = rows.rename_columns([_named(name) for name in columns])
        pyarrow.csv.write_csv(rows, directory / f"{file.stem}.csv")


def run(query: str, events: Path, out: Path | None) -> Figures:
    """Run a query."""
    pw.internals.parse_graph.G.clear()
    with tempfile.TemporaryDirectory() as scratch:

        def read(kind: str) -> Any:
            directory = Path(scratch, kind)
            columns = READS[query][kind]
            write_csv(events / kind, columns, directory)
            types = {_named(name): str if name in TEXTS else int for name in columns}
            schema = pw.schema_from_types(**types)
            return pw.io.csv.read(str(directory), schema=schema, mode="static")

        answer = QUERIES[query](read)
        written = Path(scratch, "answer.csv")
        if out is None:
            pw.io.null.write(answer)
        else:
            pw.io.csv.write(answer, str(written))
        with Measured() as measured:
            pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        if out is not None:
            keep(written, out)
    return measured.figures()


def keep(written: Path, out: Path) -> None:
    """Leave out what pathway adds to each row: the time of a change and its sign, which is never a retraction here."""
    rows = pyarrow.csv.read_csv(written)
    if min(rows["diff"].to_pylist(), default=1) < 1:
        raise RuntimeError("a row was taken back")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    pq.write_table(rows.drop_columns(["time", "diff"]), out / "part-0.parquet")


if __name__ == "__main__":
    peer_main(run, QUERIES, ["pathway"])
