"""bytewax: a flow in two processes of one worker each, which read row groups of the Parquet files in turns.

Items are Arrow tables for as long as that serves: columns are computed, rows filtered and counts made beforehand in
pyarrow, by hand, a row group at a time; what has to be joined or put into windows are Python tuples. Its clock runs
from the first row group that is read to the end of both processes' flows. Watermarks are per key, so that windows over
windows (q5) have no sound end before that of the input: only there the last step waits for it. Results are thrown away,
those to be compared are written as CSV.
"""

import multiprocessing
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import bytewax.operators as op  # pyright: ignore[reportMissingImports]
import bytewax.operators.windowing as win  # pyright: ignore[reportMissingImports]
import pyarrow as pa
import pyarrow.compute
from bytewax.dataflow import Dataflow  # pyright: ignore[reportMissingImports]
from bytewax.testing import cluster_main  # pyright: ignore[reportMissingImports]

from benchmarks.nexmark.peers.bytewax_files import WORKERS, Results, RowGroups
from benchmarks.nexmark.peers.measure import READS, Figures, Measured, peer_main

# Its functions are made when it is imported, so that no type checker knows them.
pc: Any = pyarrow.compute
SIZE_MS: Final = 10_000
SLIDE_MS: Final = 2_000
BUCKET_MS: Final = 1_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SIZE: Final = timedelta(milliseconds=SIZE_MS)
# Two readers are a few row groups of fourteen seconds apart.
WAIT: Final = timedelta(minutes=2)
Read = Callable[[str], Any]


def _time(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


def _clock(getter: Callable[[Any], int]) -> Any:
    """Return an event-time clock of epoch milliseconds in an item."""
    return win.EventClock(lambda item: _time(getter(item)), wait_for_system_duration=WAIT)


def _floor(table: pa.Table, size_ms: int, name: str = "date_time") -> Any:
    column = table.column(name)
    return pc.multiply(pc.divide(column, size_ms), size_ms)


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def q0(read: Read) -> Any:
    return read("bid")


def q1(read: Read) -> Any:
    def euros(bids: pa.Table) -> pa.Table:
        price = pc.multiply(pc.cast(bids.column("price"), pa.float64()), 0.908)
        return bids.set_column(bids.column_names.index("price"), "price", price)

    return op.map("euros", read("bid"), euros)


def q2(read: Read) -> Any:
    def some(bids: pa.Table) -> pa.Table:
        auction = bids.column("auction")
        rest = pc.subtract(auction, pc.multiply(pc.divide(auction, 123), 123))
        return bids.filter(pc.equal(rest, 0))

    return op.map("some", read("bid"), some)


def q3(read: Read) -> Any:
    def auctions(table: pa.Table) -> Iterable[Any]:
        kept = table.filter(pc.equal(table.column("category"), 10))
        return ((str(seller), (None, id_)) for id_, seller, _ in _rows(kept))

    def persons(table: pa.Table) -> Iterable[Any]:
        kept = table.filter(pc.is_in(table.column("state"), value_set=pa.array(["or", "id", "ca"])))
        return ((str(row[0]), (row[1:], None)) for row in _rows(kept))

    def join(state: Any, item: Any) -> Any:
        person, waiting = (None, []) if state is None else state
        came, auction = item
        if came is not None:
            return (came, []), [(*came, one) for one in waiting]
        if person is None:
            return (None, [*waiting, auction]), []
        return state, [(*person, auction)]

    both = op.merge(
        "both",
        op.flat_map("auctions", read("auction"), auctions),
        op.flat_map("persons", read("person"), persons),
    )
    return op.key_rm("rows", op.stateful_flat_map("join", both, join))


def q5(read: Read) -> Any:
    def panes(bids: pa.Table) -> Iterable[Any]:
        table = pa.table({"auction": bids.column("auction"), "pane": _floor(bids, SLIDE_MS)})
        counts = table.group_by(["auction", "pane"], use_threads=False).aggregate(
            [([], "count_all")]
        )
        return ((str(auction), (pane, count)) for auction, pane, count in _rows(
            counts.select(["auction", "pane", "count_all"])
        ))  # fmt: skip

    windower = win.SlidingWindower(SIZE, timedelta(milliseconds=SLIDE_MS), EPOCH)
    counts = win.fold_window(
        "count",
        op.flat_map("panes", read("bid"), panes),
        _clock(lambda item: item[0]),
        windower,
        int,
        lambda count, item: count + item[1],
        lambda one, other: one + other,
        ordered=False,
    )

    def by_window(item: Any) -> Any:
        auction, (window, count) = item
        return str(window), (count, [auction])

    def more(one: Any, other: Any) -> Any:
        if one[0] != other[0]:
            return max(one, other)
        return one[0], one[1] + other[1]

    def rows(item: Any) -> Iterable[Any]:
        begin = int(item[0]) * SLIDE_MS
        count, auctions = item[1]
        return [(auction, begin, begin + SIZE_MS, count) for auction in auctions]

    best = op.reduce_final("best", op.map("by window", counts.down, by_window), more)
    return op.flat_map("rows", best, rows)


def q7(read: Read) -> Any:
    def candidates(bids: pa.Table) -> Iterable[Any]:
        begin = _floor(bids, SIZE_MS)
        table = bids.append_column("begin", begin)
        best = table.group_by("begin", use_threads=False).aggregate([("price", "max")])
        for start, price in _rows(best.select(["begin", "price_max"])):
            is_best = pc.and_(pc.equal(begin, start), pc.equal(bids.column("price"), price))
            yield from (("all", [row]) for row in _rows(bids.filter(is_best)))

    def higher(one: list[Any], other: list[Any]) -> list[Any]:
        if not one or not other or one[0][2] == other[0][2]:
            return one + other
        return max(one, other, key=lambda rows: rows[0][2])

    best = win.fold_window(
        "best",
        op.flat_map("candidates", read("bid"), candidates),
        _clock(lambda rows: rows[0][3]),
        win.TumblingWindower(SIZE, EPOCH),
        list,
        higher,
        higher,
        ordered=False,
    )
    return op.flat_map("rows", best.down, lambda item: item[1][1])


def q7max(read: Read) -> Any:
    def candidates(bids: pa.Table) -> Iterable[Any]:
        table = bids.append_column("begin", _floor(bids, SIZE_MS))
        best = table.group_by("begin", use_threads=False).aggregate([("price", "max")])
        return (("all", row) for row in _rows(best.select(["begin", "price_max"])))

    best = win.fold_window(
        "best",
        op.flat_map("candidates", read("bid"), candidates),
        _clock(lambda item: item[0]),
        win.TumblingWindower(SIZE, EPOCH),
        int,
        lambda price, item: max(price, item[1]),
        max,
        ordered=False,
    )

    def row(item: Any) -> Any:
        window, price = item[1]
        return window * SIZE_MS, window * SIZE_MS + SIZE_MS, price

    return op.map("rows", best.down, row)


def q8(read: Read) -> Any:
    def persons(table: pa.Table) -> Iterable[Any]:
        table = table.set_column(2, "date_time", _floor(table, SIZE_MS))
        return ((str(id_), (begin, name)) for id_, name, begin in _rows(table))

    def sellers(table: pa.Table) -> Iterable[Any]:
        table = table.set_column(1, "date_time", _floor(table, SIZE_MS))
        different = table.group_by(["seller", "date_time"], use_threads=False).aggregate([])
        return ((str(seller), (begin, None)) for seller, begin in _rows(
            different.select(["seller", "date_time"])
        ))  # fmt: skip

    joined = win.join_window(
        "join",
        _clock(lambda item: item[0]),
        win.TumblingWindower(SIZE, EPOCH),
        op.flat_map("persons", read("person"), persons),
        op.flat_map("sellers", read("auction"), sellers),
        insert_mode="first",
        ordered=False,
    )

    def row(item: Any) -> Any:
        id_, (_, (person, seller)) = item
        return None if person is None or seller is None else (id_, person[1], person[0])

    return op.filter_map("rows", joined.down, row)


def q11(read: Read) -> Any:
    def buckets(bids: pa.Table) -> Iterable[Any]:
        """Count within a second, which no session has a gap in: its first and its last bid stand for it."""
        table = bids.append_column("bucket", _floor(bids, BUCKET_MS))
        grouped = table.group_by(["bidder", "bucket"], use_threads=False)
        found = grouped.aggregate(
            [("date_time", "min"), ("date_time", "max"), ("date_time", "count")]
        )
        names = ["bidder", "date_time_min", "date_time_max", "date_time_count"]
        for bidder, first, last, count in _rows(found.select(names)):
            yield str(bidder), (first, count)
            if last != first:
                yield str(bidder), (last, 0)

    def together(one: Any, other: Any) -> Any:
        return min(one[0], other[0]), max(one[1], other[1]), one[2] + other[2]

    sessions = win.fold_window(
        "sessions",
        op.flat_map("buckets", read("bid"), buckets),
        _clock(lambda item: item[0]),
        win.SessionWindower(SIZE),
        lambda: (1 << 62, 0, 0),
        lambda session, item: together(session, (item[0], item[0], item[1])),
        together,
        ordered=False,
    )

    def row(item: Any) -> Any:
        bidder, (_, (first, last, count)) = item
        return bidder, first, last + SIZE_MS, count

    return op.map("rows", sessions.down, row)


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


def build(query: str, events: Path, out: Path | None, times: Any) -> Any:
    """Return the flow of a query; it notes in `times` when the first row group was asked for."""
    flow = Dataflow("nexmark")

    def read(kind: str) -> Any:
        return op.input(kind, flow, RowGroups(events / kind, READS[query][kind], times))

    op.output("results", QUERIES[query](read), Results(out))
    return flow


def work(flow: Any, addresses: list[str], index: int, times: Any) -> None:
    """Be one of the workers; note when the last of them was done."""
    cluster_main(flow, addresses, index)
    with times.get_lock():
        times[1] = max(times[1], time.monotonic())


def other_worker(
    query: str,
    events: Path,
    out: Path | None,
    addresses: list[str],
    index: int,
    ready: Any,
    times: Any,
) -> None:
    """Be a worker in a process of its own."""
    flow = build(query, events, out, times)
    ready.wait()
    work(flow, addresses, index, times)


def free_addresses() -> list[str]:
    """Return addresses of this host that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(WORKERS)]
    addresses = [f"127.0.0.1:{opened.getsockname()[1]}" for opened in sockets]
    for opened in sockets:
        opened.close()
    return addresses


def run(query: str, events: Path, out: Path | None) -> Figures:
    """Run a query in this process and others."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(WORKERS)
    times = context.Array("d", [0.0, 0.0])
    addresses = free_addresses()
    others = [
        context.Process(
            target=other_worker, args=(query, events, out, addresses, index, ready, times)
        )
        for index in range(1, WORKERS)
    ]
    for other in others:
        other.start()
    flow = build(query, events, out, times)
    ready.wait()
    with Measured() as measured:
        work(flow, addresses, 0, times)
        for other in others:
            other.join()
    if any(other.exitcode for other in others):
        raise RuntimeError("a worker failed")
    return measured.figures((times[1] - times[0]) * 1000)


if __name__ == "__main__":
    peer_main(run, QUERIES, ["bytewax"])
