"""Makes docs/network_report.md, with pictures, of the newest results.

python -m benchmarks.network.report [--carrier tcp]
"""

import argparse
import json
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.network.figures import newest_sections, with_shares
from benchmarks.network.references import HALF_PERCENT, peak_shares, reference_table
from benchmarks.page import DOCS, machine_text, picture
from benchmarks.record import RESULTS

Sections = Mapping[str, Any]
OTHERS = ("back_pressure_memory", "state_back_pressure")

INTRODUCTION = """\
# How fast the exchange is

Made by `python -m benchmarks.network.report` of the newest figures that `make bench BENCH=network` kept. Two
TaskManager processes on one machine; a keyed edge goes through the real record writer, subpartitions, credits,
connection and gate. How each figure is taken stands at the head of its file in `benchmarks/network/`, and how to read
them in `benchmarks/README.md`.

Some words: a *channel* is what one consumer reads of one producer. Rows travel in *batches*; a batch leaves when it is
full, or when its first row has waited for the *timeout* (0: at once; -1: never before it is full). A consumer grants
*credit* for as many batches as it has room for, and a producer without credit waits: it is *back-pressured*.
"""
MATRIX = """\
## Rows per second

{picture}

A row is a key, a time stamp and a payload; on the wire the key and its hash come with it once more, 12 bytes. The
producer emits batches of up to 8,192 rows, which are split by key group; consumers take them as they come.{peak}

{share}

100 percent is what two blocking sockets move of the same rows, as one stream that nobody splits, serialises or looks
at.{below}
"""
WHY_BELOW_HALF = """\
A profile of 2026-11-22 (1 channel × 16 B, 16 × 200 B) says more than these figures: two fifths was the interpreter,
which each batch passes on four threads, and three tenths the kernel, which raw sockets pay for as well; with many
channels the producer's core was full, half with splitting and sealing.

The largest cause that was mended: Linux had both processes on one core for most of a run. Since each TaskManager
keeps to a core of its own, an unsplit stream over TCP is at 63 % of raw sockets in pairs instead of 24 to 40 %
(`docs/adr/0019-task-managers-keep-to-cores-of-their-own.md`). On keyed edges it was threads that wake each other:
since what one call seals is handed over together, they change 4.1 times for a batch instead of 7.1 (16 channels × 16
B), and 1.5 times instead of 5.4 (128 × 16 B). With rows that are copied in their wire form that was worth 0.98 to
1.13 times the rows per second with 16 channels, 1.18 to 1.25 with 128, and 1.20 to 1.45 with 512. What else was
found, mended and tried stands in `benchmarks/README.md`.
"""
WHY_TLS_IS_SLOWER = """
That is {share:.0f} % of raw TCP, which encrypts nothing. A GB takes {tls_s:.2f} s over TLS and {tcp_s:.2f} s over
TCP. What is more are its bytes, which the one network thread of either TaskManager encrypts and decrypts
(`docs/adr/0007-one-certificate-per-cluster.md`), and a copy of each batch on its way in, which over TCP is read to
where it stays; no profile says how much each of them is. Nothing of this is mended: larger pieces in each call made
no difference (0.98 of the rate), as the library joins them by itself.
"""
LATENCY = """\
## Latency

{picture}

From before `emit` to after `poll`, 3,200 rows a second; solid the median, dotted the 99th percentile. With a timeout
of -1 rows wait for a full batch. {table}
"""
REFERENCES = """\
## What to compare with

{table}
Flink's own posts were taken on clusters of other machines, so that they are marks, not rivals; raw sockets and a plain
file are measured here, in the same turn. Half of the raw sockets, or the reason why not, 60 % of the plain file, and
90 % for neighbours are our own aims. Nothing here has crossed a network: both ends are on one machine. Where no number
is given, nobody has said how much it should be.
"""
SMALL_BATCH_BYTES = 16 << 10
HARM_TEXTS = {
    "stalled": "asks for rows, grants credit, and never reads",
    "dripping": "sends its frames byte by byte",
    "garbage": "knows the secret, then sends what is no frame, again and again",
    "strangers": "does not know the secret and sends what is no frame, again and again",
    "flooding": "knows the secret and sends what is no frame without end",
    "chattering": "sends signs of life without end",
    "overgranting": "grants more credit than it said it can hold",
    "overspending": "produces rows for which it has no credit",
    "skipping": "produces rows and leaves out their numbers",
}


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Return the kept runs, oldest first; none where nothing was kept."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines() if line.strip()]


def newest_of_others() -> dict[str, Any]:
    """Return the newest figures of the benchmarks whose answers belong on this page."""
    kept = {name: read_lines(RESULTS / f"{name}.jsonl") for name in OTHERS}
    return {name: lines[-1]["figures"] for name, lines in kept.items() if lines}


def prepare(lines: Iterable[Mapping[str, Any]], carrier: str) -> dict[str, Any]:
    """Return the newest sections, the matrix with its shares of raw sockets as `cells`."""
    sections = newest_sections(lines)
    cells = [cell for cell in sections.get("matrix", []) if cell["carrier"] == carrier]
    sections["cells"] = with_shares(cells, sections.get("ceilings", []))
    return sections


def write_page(
    sections: Sections, drawn: Sequence[str], others: Mapping[str, Any] | None = None
) -> str:
    """Return the report; what was not measured is left out. `others`: newest figures of other benchmarks."""
    runs = [run for run in sections["runs"].values() if run["machine"]]
    parts = [INTRODUCTION, machine_text(runs, [sections.get("load_average_before", 0.0)])]
    if sections["cells"]:
        parts.append(
            MATRIX.format(
                picture=picture("network_throughput", drawn),
                share=picture("network_share_of_raw", drawn),
                peak=peak_text(sections["cells"]),
                below=below_half_text(sections),
            )
        )
        parts.append(
            LATENCY.format(picture=picture("network_latency", drawn), table=credit_text(sections))
        )
    parts += [disk_text(sections, drawn), costs_text(sections, drawn), slow_text(sections)]
    parts.append(REFERENCES.format(table=reference_table(sections, others or {})))
    return "\n".join(part for part in parts if part)


def peak_text(cells: Sequence[Mapping[str, Any]]) -> str:
    """Compare a timeout of 1 ms with the best of all, for each number of channels and row size."""
    sentences: list[str] = []
    for size in sorted({cell["row_bytes"] for cell in cells}):
        shares = peak_shares(cells, size)
        if shares:
            sentences.append(f"{min(shares):.0f} to {max(shares):.0f} % for rows of {size:,} B")
    if not sentences:
        return ""
    return "\nOf what the best timeout reaches, 1 ms keeps " + ", ".join(sentences) + "."


def below_half_text(sections: Sections) -> str:
    """Name the cells with full batches that stay below half of raw sockets, and what each spends its time with."""
    splits = {
        (row["channels"], row["row_bytes"]): row["split_cpu_s_per_mrow"]
        for row in sections.get("splits", [])
        # Older figures are of a splitting that the record writer does not do.
        if "split_cpu_s_per_mrow" in row
    }
    timed = [c for c in sections["cells"] if c["timeout_ms"] >= 0 and "share_percent" in c]
    slow = [cell for cell in timed if cell["share_percent"] < HALF_PERCENT]
    rows = [
        f"| {cell['channels']} | {cell['row_bytes']:,} | {cell['share_percent']:.0f} % "
        f"| {cell['mrows_per_s']:.2f} "
        f"| {reason_of(cell, splits.get((cell['channels'], cell['row_bytes'])))} |"
        for cell in sections["cells"]
        if cell["timeout_ms"] < 0 and cell.get("share_percent", 100.0) < HALF_PERCENT
    ]
    text = ""
    if slow:
        filled = statistics.median(cell["rows_per_batch"] for cell in slow)
        text += (
            f" With a timeout {len(slow)} of {len(timed)} cells are below half of that: rows leave before"
            f" batches are full, {filled:,.0f} to a batch in their median, and a batch costs both sides the same,"
            " full or not."
        )
    if rows:
        text += (
            " With full batches these are below half, and why:\n\n"
            "| channels | row, B | of raw | Mrow/s | what it spends its time with |\n"
            "| ---: | ---: | ---: | ---: | --- |\n" + "\n".join(rows) + "\n\n" + WHY_BELOW_HALF
        )
    return text


def reason_of(cell: Mapping[str, Any], split_cpu_s_per_mrow: float | None) -> str:
    """What a cell spends its time with, as far as its figures tell."""
    rows_per_batch = cell.get("rows_per_batch", 0.0)
    batch_bytes = rows_per_batch * cell["mb_per_s"] / max(1e-9, cell["mrows_per_s"])
    cpu_s = cell.get("cpu_s_per_mrow", 0.0)
    spent = f"{cpu_s * rows_per_batch:,.0f} µs of both sides for each batch"
    shares = ""
    if cpu_s and "producing_task_cpu_s_per_mrow" in cell:
        split = ""
        if cell["channels"] > 1 and split_cpu_s_per_mrow:
            split = f" ({100 * split_cpu_s_per_mrow / cpu_s:.0f} % splitting)"
        producing, consuming = (
            100 * cell[f"{which}_task_cpu_s_per_mrow"] / cpu_s
            for which in ("producing", "consuming")
        )
        shares = (
            f": {producing:.0f} % the producing task{split}, {consuming:.0f} % the consuming one,"
            " the rest their network threads"
        )
    if batch_bytes < SMALL_BATCH_BYTES:
        return f"small batches, {rows_per_batch:,.0f} rows each: {spent}{shares or ', most of it Python'}"
    return f"{spent} of {rows_per_batch:,.0f} rows{shares or ': copies into the socket and out of it, and Python'}"


def credit_text(sections: Sections) -> str:
    """The round trip of a credit."""
    credit = sections.get("credit")
    if not credit or "credit_us_p50" not in credit:
        return ""
    return (
        f"A credit goes and the batch it pays for comes in {credit['credit_us_p50']:,.0f} µs"
        f" (99 %: {credit['credit_us_p99']:,.0f} µs); two blocking sockets take"
        f" {credit['raw_us_p50']:,.0f} µs ({credit['raw_us_p99']:,.0f} µs) for as many bytes."
    )


def disk_text(sections: Sections, drawn: Sequence[str]) -> str:
    """Stored partitions."""
    rows = sections.get("disk")
    if not rows:
        return ""
    heads = ("write_synced", "write", "read", "read_cached")
    lines = [
        f"| {row['kind']}, {row['channels']} channels | "
        + " | ".join(
            f"{row[f'{what}_mb_per_s']:,.0f} ({row[f'{what}_share_percent']:.0f} %)"
            for what in heads
        )
        + " |"
        for row in rows
    ]
    return (
        f"## Disk\n\n{picture('network_disk', drawn)}\n\n"
        "MB/s, and the share of a plain file that is written or read in one go in the same directory and turn (median"
        " of all turns; the figures are the best). Nothing is compressed; what is written and read back carries"
        " checksums, which the plain file does not. The first column waits for fsync, the second leaves the"
        " bytes in the page cache, as tasks do. For the third the page cache is told to forget the file before; the"
        " fourth reads from memory. The aim is 60 % in the first and third.\n\n"
        "| | write, fsync | write | read, disk | read, cached |\n| --- | ---: | ---: | ---: | ---: |\n"
        + "\n".join(lines)
        + "\n"
        + disk_reasons(rows)
    )


def disk_reasons(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say which stored results reach less than half of a plain file, and the processor time of both, if measured."""
    text = "".join(
        f"\n- {row['kind']}, {row['channels']} channels, {what}:"
        f" {row[f'{what}_cpu_s_per_gb']:.2f} s of processor time per GB, where the plain file takes"
        f" {row[f'raw_{what}_cpu_s_per_gb']:.2f} s"
        for row in rows
        for what, share in (("write", "write_synced"), ("read", "read"))
        if row[f"{share}_share_percent"] < HALF_PERCENT and f"raw_{what}_cpu_s_per_gb" in row
    )
    if not text:
        return ""
    head = (
        "Less than half of a plain file. Consumers are read for in turn, so that reads jump between as many places;"
        " on 2026-11-22 a plain file read in such an order was at about half too, and the rest was processors"
        " (`benchmarks/README.md` has that profile, and what was tried):"
    )
    return f"\n{head}\n{text}\n"


def costs_text(sections: Sections, drawn: Sequence[str]) -> str:
    """TLS and compression."""
    tls, codecs = sections.get("tls"), sections.get("compression", [])
    if not tls and not codecs:
        return ""
    text = f"## Encryption and compression\n\n{picture('network_costs', drawn)}\n"
    if tls:
        text += (
            f"\nOver TLS the exchange moves {tls['tls_share_of_tcp_percent']:.0f} % of what it moves"
            " over TCP. Processes on one host use Unix sockets, without it.\n"
        )
        if tls["tls_mb_per_s"] < tls["raw_tcp_mb_per_s"] / 2:
            text += WHY_TLS_IS_SLOWER.format(
                share=100 * tls["tls_mb_per_s"] / tls["raw_tcp_mb_per_s"],
                tls_s=1000 / tls["tls_mb_per_s"],
                tcp_s=1000 / tls["tcp_mb_per_s"],
            )
    if codecs:
        ratios = [
            f"{row['codec']} makes {row['data']} {row['ratio']} times smaller"
            for row in codecs
            if row["ratio"] > 1
        ]
        text += "\n" + "; ".join(ratios) + ". Only stored batches are compressed.\n"
    return text


def slow_text(sections: Sections) -> str:
    """Stalled channels and debloating."""
    stalled, debloating = sections.get("stalled", []), sections.get("debloating", [])
    lines: list[str] = []
    beside = [{"harm": "a channel that is not read"} | row for row in stalled]
    lines += neighbours_text([*beside, *sections.get("mischief", [])])
    ages = {row["debloating"]: row for row in debloating if "in_flight_ms_p50" in row}
    if len(ages) == 2:
        lines.append(
            "In front of a task that takes 8 MB/s, with 16 channels, a row waits"
            f" {ages[False]['in_flight_ms_p50'] / 1000:.2f} s"
            f" (99 %: {ages[False]['in_flight_ms_p99'] / 1000:.2f} s); with debloating to 0.2 s"
            f" {ages[True]['in_flight_ms_p50'] / 1000:.2f} s"
            f" ({ages[True]['in_flight_ms_p99'] / 1000:.2f} s)."
        )
    return "## Slow consumers\n\n" + "\n\n".join(lines) + "\n" if lines else ""


def neighbours_text(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the channels of others keep beside a channel or peer that does harm; at two loads."""
    if not rows:
        return []
    lines = [
        f"| {row['harm']} | {row['load']} | {row['share_percent']:.1f} %"
        f" | {row['share_percent_least']:.1f} to {row['share_percent_most']:.1f} %"
        f" | {row.get('share_of_alone_percent', row['share_percent']):.1f} %"
        f" | {row.get('spent_on_it_cpu_percent', 0):.0f} % | {row.get('bad_cpu_percent', 0):.0f} % |"
        for row in rows
    ]
    return [
        "What others keep of their rate beside it, read as fast as they come (saturated) and at a fixed rate below that"
        " (throttled), compared with turns beside a process that takes as much of the processors and talks to nobody:"
        " what is missing is our doing. Beside it, what they keep of their rate alone, what our two processes spend on"
        " it, and what it takes itself, of one processor. Medians of turns that alternate, at least 90 % is the aim.",
        "| beside | others are | they keep | single turns | of alone | we spend | it takes |\n"
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |\n" + "\n".join(lines),
        *harms_told({row["harm"] for row in rows}),
    ]


def harms_told(harms: Collection[str]) -> list[str]:
    """What the bad peers of the table do."""
    told = [f"*{harm}*: {text}" for harm, text in HARM_TEXTS.items() if harm in harms]
    return ["The peers: " + "; ".join(told) + "."] if told else []


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network.report")
    parser.add_argument("--results", type=Path, default=RESULTS / "network.jsonl")
    parser.add_argument("--output", type=Path, default=DOCS / "network_report.md")
    parser.add_argument("--carrier", default="unix", help="of the matrix")
    options = parser.parse_args()
    lines = read_lines(options.results)
    if not lines:
        raise SystemExit(f"{options.results} holds no run: make bench BENCH=network")
    # Here, so that the text alone can be made and tested without it.
    from benchmarks.network.pictures import draw_all

    sections = prepare(lines, options.carrier)
    drawn = draw_all(sections, options.output.parent / "pictures")
    options.output.write_text(write_page(sections, drawn, newest_of_others()))
    print(f"{options.output} and {len(drawn)} pictures")


if __name__ == "__main__":
    main()
