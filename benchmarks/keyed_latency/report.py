"""Makes docs/latency_report.md, with pictures, of the newest results.

python -m benchmarks.keyed_latency.report
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.keyed_latency.peers_text import peers_text
from benchmarks.page import DOCS, machine_text, picture
from benchmarks.record import RESULTS
from headrace.network.flow.latency_governor import WAY_MS, budget_of

P50_AIM_MS, P99_AIM_MS = 2.0, 6.0
TARGET_SLACK = 1.1
"""A target counts as held where the 99th percentile is at most this much of it."""
Cell = Mapping[str, Any]
Cells = Sequence[Cell]

INTRODUCTION = """\
# Latency, throughput, and what sets them against each other

Made by `python -m benchmarks.keyed_latency.report` of the newest figures that `make bench BENCH=keyed_latency` kept. A
source, one keyed shuffle, a count in keyed state and a sink, on Spark, parallelism 2; how each figure is taken stands
at the head of the files in `benchmarks/keyed_latency/`.
"""
TIMEOUTS = """\
## By buffer timeout

{picture}

Latency is taken at {rate:,} records per second with exactly-once checkpoints every {interval} ms, from the moment a
record was due at its source to the sink; throughput is how fast the same job goes without a schedule. A batch costs
both sides the same, full or not: without a timeout (0) each portion of the source leaves alone, which is soonest and
dearest; the longer rows may be held, the more of them share the cost. With -1 only full batches and barriers move rows,
so that the checkpoints' interval bounds what a row waits. That is the trade which Flink's documents describe. Rows with
another load average before them are of another run.

{table}

{aim}
"""
GOVERNED = """\
## With a latency target

{picture}

`headrace.latency.target` takes the place of the buffer timeout: each exchange holds rows as long as the target allows
({source}), measured by its own rate, queues and late flushes, so that
batches are as large as they may be. What the way takes the slowest rows, some {way:g} ms on a machine that is half
busy, is left out of it: a target of 5 ms leaves {left:g} ms to hold rows. The target is that of one exchange;
what is measured here is the whole way from the source's schedule to the sink, which holds a tick of the source's and
the work of both tasks besides.

{table}

{held}
"""


def read_cells(file: Path) -> list[dict[str, Any]]:
    """Return the newest figures for each timeout, and for each target and rate, with the machine they are of."""
    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in file.read_text().splitlines():
        run = json.loads(line)
        figures = run["figures"]
        if "section" not in figures:
            continue  # kept before the question had parts
        names = ("section", "buffer_timeout_ms", "target_ms", "rate_per_second")
        key = tuple(figures.get(name) for name in names)
        newest[key] = {**figures, "date": run["date"], "machine": run["machine"]}
    return list(newest.values())


def section_of(cells: Iterable[Cell], name: str) -> list[Cell]:
    """Return the cells of a section, timeouts from the shortest to none, targets and rates upward."""
    found = [cell for cell in cells if cell["section"] == name]
    if name == "timeouts":
        return sorted(found, key=lambda c: (c["buffer_timeout_ms"] < 0, c["buffer_timeout_ms"]))
    return sorted(found, key=lambda cell: (cell.get("target_ms", 0), cell["rate_per_second"]))


def write_page(cells: Cells, drawn: Sequence[str]) -> str:
    """Return the page; a section without figures is left out."""
    # What other engines were beside says itself when, and how busy the machine was.
    parts = [INTRODUCTION, machine_text([cell for cell in cells if cell["section"] != "peers"])]
    timeouts, governed = section_of(cells, "timeouts"), section_of(cells, "governed")
    if timeouts:
        parts.append(
            TIMEOUTS.format(
                picture=picture("latency_timeouts", drawn),
                rate=timeouts[0]["rate_per_second"],
                interval=timeouts[0]["checkpoint_interval_ms"],
                table=timeout_table(timeouts),
                aim=aim_text(timeouts, governed),
            )
        )
    if governed:
        parts.append(
            GOVERNED.format(
                picture=picture("latency_governed", drawn),
                source="`headrace/network/flow/latency_governor.py`",
                way=WAY_MS,
                left=budget_of(5),
                table=governed_table(governed),
                held=held_text(governed) + floor_text(timeouts, governed),
            )
        )
    parts += [peers_text(cell, drawn) for cell in section_of(cells, "peers")]
    return "\n".join(part for part in parts if part)


def timeout_table(cells: Cells) -> str:
    """A row for each timeout."""
    rows = [
        f"| {cell['buffer_timeout_ms']} | {latency_columns(cell)} | {cell['max_records_per_second']:,}"
        f" | {cell.get('load_average_before', '–')} |"
        for cell in cells
    ]
    head = "| buffer timeout, ms | p50, ms | p99, ms | p99.9, ms | most records/s | load before |\n"
    return head + "| ---: | ---: | ---: | ---: | ---: | ---: |\n" + "\n".join(rows)


def governed_table(cells: Cells) -> str:
    """A row for each target and rate."""
    rows = [
        f"| {cell['target_ms']} | {cell['rate_per_second']:,} | {latency_columns(cell)}"
        f" | {cell['max_records_per_second']:,} |"
        for cell in cells
    ]
    head = "| target, ms | records/s | p50, ms | p99, ms | p99.9, ms | most records/s |\n"
    return head + "| ---: | ---: | ---: | ---: | ---: | ---: |\n" + "\n".join(rows)


def latency_columns(cell: Cell) -> str:
    """Three columns of percentiles."""
    return f"{cell['p50_ms']:.1f} | {cell['p99_ms']:.1f} | {cell['p99.9_ms']:.1f}"


def aim_text(timeouts: Cells, governed: Cells) -> str:
    """Compare with the aim what reaches it, or else what is soonest; of targets those at the rate of the timeouts."""
    rate = timeouts[0]["rate_per_second"]
    asked = [*timeouts, *(cell for cell in governed if cell["rate_per_second"] == rate)]
    reached = [
        cell for cell in asked if cell["p50_ms"] <= P50_AIM_MS and cell["p99_ms"] <= P99_AIM_MS
    ]
    named = [
        f"{cell['p50_ms']:.1f} and {cell['p99_ms']:.1f} ms with a {_setting_of(cell)}"
        for cell in reached or [min(asked, key=lambda cell: cell["p99_ms"])]
    ]
    return (
        f"The aim at this rate is {P50_AIM_MS:g} ms for the median and {P99_AIM_MS:g} ms for the 99th percentile. It is"
        f" {'reached' if reached else 'missed'}: {', '.join(named)}."
    )


def _setting_of(cell: Cell) -> str:
    is_target = cell["section"] == "governed"
    return (
        f"target of {cell['target_ms']} ms"
        if is_target
        else f"timeout of {cell['buffer_timeout_ms']} ms"
    )


def held_text(cells: Cells) -> str:
    """Say which targets are held by the 99th percentile."""
    missed = [cell for cell in cells if cell["p99_ms"] > TARGET_SLACK * cell["target_ms"]]
    if not missed:
        return "The 99th percentile stays within a tenth of every target, at every rate."
    named = ", ".join(
        f"{cell['target_ms']} ms at {cell['rate_per_second']:,}/s ({cell['p99_ms']:.1f} ms)"
        for cell in missed
    )
    return (
        f"{len(cells) - len(missed)} of {len(cells)} targets are held by the 99th percentile, within a tenth. Not held:"
        f" {named}."
    )


def floor_text(timeouts: Cells, governed: Cells) -> str:
    """Say which targets lie below what a record takes where nothing is held, at the rate where that was asked."""
    for cell in timeouts:
        if cell["buffer_timeout_ms"] == 0:
            rate, floor_ms = cell["rate_per_second"], cell["p99_ms"]
            below = sorted(
                one["target_ms"]
                for one in governed
                if one["rate_per_second"] == rate and TARGET_SLACK * one["target_ms"] < floor_ms
            )
            if below:
                named = ", ".join(f"{target_ms} ms" for target_ms in below)
                return (
                    f" At {rate:,}/s, with a buffer timeout of 0, where no row is held, the whole way took"
                    f" {floor_ms:.1f} ms by the 99th percentile: no choice of how long to hold keeps what is"
                    f" below that ({named})."
                )
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keyed_latency.report")
    parser.add_argument("--results", type=Path, default=RESULTS / "keyed_latency.jsonl")
    parser.add_argument("--output", type=Path, default=DOCS / "latency_report.md")
    options = parser.parse_args()
    cells = read_cells(options.results)
    # Here, so that the text alone can be made and tested without it.
    from benchmarks.keyed_latency.pictures import draw_all

    drawn = draw_all(cells, options.output.parent / "pictures")
    options.output.write_text(write_page(cells, drawn))
    print(f"{options.output} and {len(drawn)} pictures")


if __name__ == "__main__":
    main()
