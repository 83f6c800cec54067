"""What the report says of each point by which an exchange is measured: reference, what was found, whether it is met.

Shares have a decimal: 89.5 % is not the 90 % that it would be rounded to. Pure: newest sections in, lines of a table
out. What other benchmarks measure is told from their newest results.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Sections = Mapping[str, Any]
PEAK_AIM_PERCENT = 75
HALF_PERCENT = 50
"""Our own aim beside raw sockets; a stored result below half of a plain file has to say why."""
DISK_AIM_PERCENT = 60
"""Of a plain file in the same directory and turn, to the disk and from it."""
FLINK_DISK_MB_PER_S = 160
NEIGHBOURS_AIM_PERCENT = 90
GROWTH_AIM_PERCENT = 5
NO_REFERENCE = "–"


@dataclass(frozen=True)
class Point:
    """One line. `is_met` is None where nobody has said how much it should be."""

    what: str
    reference: str
    found: str
    is_met: bool | None = None

    def __str__(self) -> str:
        met = NO_REFERENCE if self.is_met is None else "yes" if self.is_met else "**no**"
        return f"| {self.what} | {self.reference} | {self.found} | {met} |"


def reference_table(sections: Sections, others: Mapping[str, Any]) -> str:
    """Return the table; a point that was not measured says what measures it."""
    points = [
        *peak_points(sections.get("cells", [])),
        *raw_points(sections.get("cells", [])),
        *neighbour_points(sections),
        *disk_points(sections.get("disk", [])),
        *cost_points(sections),
        memory_point(others.get("back_pressure_memory")),
        *barrier_points(others.get("state_back_pressure")),
    ]
    head = "| | reference | here | met |\n| --- | --- | --- | --- |\n"
    return head + "\n".join(map(str, points)) + "\n"


def peak_shares(cells: Sequence[Mapping[str, Any]], row_bytes: int) -> list[float]:
    """What a timeout of 1 ms keeps of the best of all timeouts, in percent, for each number of channels."""
    mine = [cell for cell in cells if cell["row_bytes"] == row_bytes]
    shares: list[float] = []
    for cell in mine:
        if cell["timeout_ms"] != 1:
            continue
        best = max(c["mrows_per_s"] for c in mine if c["channels"] == cell["channels"])
        if best > 0:
            shares.append(100 * cell["mrows_per_s"] / best)
    return shares


def peak_points(cells: Sequence[Mapping[str, Any]]) -> Iterator[Point]:
    for size in sorted({cell["row_bytes"] for cell in cells}):
        shares = peak_shares(cells, size)
        if shares:
            yield Point(
                f"rows of {size:,} B per second at a timeout of 1 ms, of the highest",
                f"about {PEAK_AIM_PERCENT} % (Flink)",
                f"{median(shares):.1f} % ({min(shares):.1f} to {max(shares):.1f} %)",
                median(shares) >= PEAK_AIM_PERCENT,
            )


def raw_points(cells: Sequence[Mapping[str, Any]]) -> Iterator[Point]:
    """With full batches: what flushing costs is told by the points above."""
    full = [c for c in cells if c["timeout_ms"] < 0 and "share_percent" in c]
    for size in sorted({cell["row_bytes"] for cell in full}):
        mine = [cell for cell in full if cell["row_bytes"] == size]
        least = min(cell["share_percent"] for cell in mine)
        counts = [str(c["channels"]) for c in mine if c["share_percent"] < HALF_PERCENT]
        below = (
            f"; below with {', '.join(counts)} channels: see the reasons above" if counts else ""
        )
        yield Point(
            f"bytes per second in rows of {size:,} B, of raw sockets",
            f"{HALF_PERCENT} %",
            f"{least:.1f} to {max(cell['share_percent'] for cell in mine):.1f} %{below}",
            not counts,
        )


def neighbour_points(sections: Sections) -> Iterator[Point]:
    stalled = [{"harm": "stalled channel"} | row for row in sections.get("stalled", [])]
    rows = [*stalled, *sections.get("mischief", [])]
    for load in dict.fromkeys(row["load"] for row in rows):
        mine = [row for row in rows if row["load"] == load]
        below = [row["harm"] for row in mine if row["share_percent"] < NEIGHBOURS_AIM_PERCENT]
        found = f"{min(row['share_percent'] for row in mine):.1f} % at least"
        if below:
            found += f"; below: {', '.join(below)}"
        what = f"what neighbours of {len(mine)} kinds of bad peers keep, {load}"
        yield Point(what, f"{NEIGHBOURS_AIM_PERCENT} %", found, not below)


def disk_points(rows: Sequence[Mapping[str, Any]]) -> Iterator[Point]:
    for row in rows:
        if row["kind"] == "sort-merge":
            shares = row["write_synced_share_percent"], row["read_share_percent"]
            yield Point(
                f"sort-merge with {row['channels']:,} channels, to the disk and from it, of a plain file",
                f"{DISK_AIM_PERCENT} % (Flink: about {FLINK_DISK_MB_PER_S} MB/s on a spinning disk)",
                f"{shares[0]:.1f} and {shares[1]:.1f} %: {row['write_synced_mb_per_s']:,.0f} and"
                f" {row['read_mb_per_s']:,.0f} MB/s",
                min(shares) >= DISK_AIM_PERCENT,
            )


def cost_points(sections: Sections) -> Iterator[Point]:
    """What the exchange takes, and what encryption leaves of it."""
    credit, tls = sections.get("credit"), sections.get("tls")
    if credit and "credit_us_p99" in credit:
        yield Point(
            "round trip of a credit, 99th percentile",
            f"raw sockets: {credit['raw_us_p99']:,.0f} µs",
            f"{credit['credit_us_p99']:,.0f} µs",
        )
    full = [c for c in sections.get("cells", []) if c["timeout_ms"] < 0 and "cpu_s_per_mrow" in c]
    for size in sorted({cell["row_bytes"] for cell in full}):
        mine = sorted((c["channels"], c["cpu_s_per_mrow"]) for c in full if c["row_bytes"] == size)
        found = ", ".join(f"{seconds:.2f} s with {count}" for count, seconds in mine)
        what = f"processor time of both sides for a million rows of {size:,} B, by channels"
        yield Point(what, NO_REFERENCE, found)
    for way in ("TCP", "TLS") if tls else ():
        rate, raw = tls[f"{way.lower()}_mb_per_s"], tls["raw_tcp_mb_per_s"]
        share = 100 * rate / raw
        yield Point(
            f"one channel over {way}, both ends on this machine (loopback, no second host), of raw TCP",
            f"{HALF_PERCENT} % of {raw:,.0f} MB/s, unencrypted",
            f"{share:.1f} %: {rate:,.0f} MB/s",
            share >= HALF_PERCENT,
        )


def memory_point(figures: Mapping[str, Any] | None) -> Point:
    what = "resident memory of TaskManagers at full back pressure"
    if not figures or not figures.get("resident_mb"):
        return Point(what, "stays", "not measured: `make bench BENCH=back_pressure_memory`")
    growth = max(figures["growth_percent"])
    sizes = " and ".join(f"{size:,.0f}" for size in figures["resident_mb"])
    found = f"{sizes} MB; growth {growth:.1f} % in {figures['seconds']:.0f} s"
    return Point(
        what, f"grows by {GROWTH_AIM_PERCENT} % at most", found, growth <= GROWTH_AIM_PERCENT
    )


def barrier_points(figures: Mapping[str, Any] | None) -> Iterator[Point]:
    what = "checkpoint of a saturated pipeline"
    cells = [] if not figures else figures.get("cells", [])
    if not cells:
        yield Point(what, NO_REFERENCE, "not measured: `make bench BENCH=state`")
    for way in dict.fromkeys(cell["way"] for cell in cells):
        mine = [cell["duration_ms"] for cell in cells if cell["way"] == way]
        found = f"{min(mine) / 1000:.1f} to {max(mine) / 1000:.1f} s, by the size of the state"
        yield Point(f"{what}, {way}", NO_REFERENCE, found)
