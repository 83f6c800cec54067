"""Makes docs/state_report.md, with pictures, of the newest results.

python -m benchmarks.state.report
"""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.page import DOCS, are_alike, machine_text, picture, run_text, shown, table
from benchmarks.record import RESULTS

QUESTIONS = ("access", "checkpoint", "increments", "restore", "back_pressure", "throughput")
SHARE_AIM_PERCENT = 90
"""Of the throughput without checkpoints."""
CHANCE = 16
"""What comes about by chance once in so many times is taken as decided."""
Figures = Mapping[str, Any]

INTRODUCTION = """\
# What state and checkpoints cost

Made by `python -m benchmarks.state.report` of the newest figures that `make bench BENCH=state` kept. How each figure is
taken stands at the head of its file in `benchmarks/state/`.
"""
SEVERAL_RUNS = """\
Not all figures are of the same day, machine and load: each section says of which its own are.
"""
BACK_PRESSURE = """\
## Checkpoints of a job under back pressure

{picture}

Three keyed stages behind a source, parallelism 2, on Spark; the last stage is slower than the rest, so that every queue
before it is full. An aligned barrier waits for its turn in these queues, an unaligned one overtakes what stands in
them, which then is part of the checkpoint.{aim}

{table}
"""
CHECKPOINT = """\
## Checkpoints of one task, by the state's size

{picture}

The state of one subtask, without a job around it, while its task goes on writing as fast as it can. The pause is what
the task stands still for. {changed}

{table}
"""
INCREMENTS = """\
## Increments one after another

RocksDB, a tenth of the keys drawn at random and written between two checkpoints. What was written becomes a new file of
its own, so that an increment is a tenth; but once there are four such files RocksDB merges them with the rest, and as
drawn keys lie all over the key space every file of the rest overlaps, is written anew and uploaded with the next
checkpoint. At 100 MB, five new files of 57 MB and two of 95 MB behind them became two of 116 MB: all of them had to go
up. So one increment in four is everything, and the mean is well above a tenth. This is what the second checkpoint of
the section above ran into; that it is more than everything at 1,000 MB is presumably because several versions of a row
are there that are not merged yet. Flink, with the same rule of four, has the same trait.

Smaller files do not help, as all of them overlap. Merging later, or RocksDB's universal compaction, uploads less in the
mean, but then checkpoints refer to more: that is kept in storage, and fetched by a restore. No setting gave less of the
one without more of the other, so RocksDB's own rule stands. Bytes do not depend on the machine's load; the last three
columns, times with all increments there, do, and on a busy machine decide nothing.

{table}
"""
THROUGHPUT = """\
## Throughput with checkpoints

{picture}

A keyed count of numbers on Spark, parallelism 2, with a checkpoint every {interval_ms} ms against none, in turns within
one job; each turn with checkpoints is compared with those before and behind it. The aim is {aim} %. The turns decide
nothing where so many would lie on the median's side of that by chance more than once in {chance} times.

{table}
"""
RESTORE = """\
## Restore

{picture}

Until the first value can be read: the same key groups, half of them (as when the parallelism doubles), and the same
from a savepoint, whose rows any backend reads.

{table}
"""
ACCESS = """\
## Heap against RocksDB

{picture}

{table}
"""


def newest(results: Path) -> dict[str, dict[str, Any]]:
    """Return the newest run of each question that was ever answered."""
    runs: dict[str, dict[str, Any]] = {}
    for question in QUESTIONS:
        file = results / f"state_{question}.jsonl"
        if file.exists():
            lines = [line for line in file.read_text().splitlines() if line.strip()]
            if lines:
                runs[question] = json.loads(lines[-1])
    return runs


def by_backend_and_size(figures: Figures) -> list[dict[str, Any]]:
    """Return flat figures, such as `heap_10mb_restore_s`, as one row per backend and size."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for name, value in figures.items():
        found = re.fullmatch(r"(heap|rocksdb_full|rocksdb)_(\d+)mb_(.+)", name)
        if found:
            key = (found.group(1), int(found.group(2)))
            row = rows.setdefault(key, {"backend": key[0], "megabytes": key[1]})
            row[found.group(3)] = value
    return list(rows.values())


def write_page(runs: Mapping[str, Mapping[str, Any]], drawn: Sequence[str]) -> str:
    """Return the report; what was not measured is left out."""
    lines = list(runs.values())
    is_one = are_alike(lines)
    parts = [INTRODUCTION, machine_text(lines) if is_one else SEVERAL_RUNS]
    sections = {
        "back_pressure": back_pressure_text,
        "checkpoint": checkpoint_text,
        "increments": increments_text,
        "throughput": throughput_text,
        "restore": restore_text,
        "access": access_text,
    }
    for question, text in sections.items():
        if question in runs:
            section = text(runs[question]["figures"], drawn)
            if not is_one:
                head, _, rest = section.partition("\n\n")
                section = f"{head}\n\n{run_text(runs[question])}\n{rest}"
            parts.append(section)
    return "\n".join(part for part in parts if part)


def back_pressure_text(figures: Figures, drawn: Sequence[str]) -> str:
    """Durations of a whole job's checkpoints."""
    cells = figures["cells"]
    least = min((cell["megabytes"] for cell in cells), default=0)
    smallest = [
        cell
        for cell in cells
        if cell["way"] == "unaligned" and cell["megabytes"] == least and "duration_ms" in cell
    ]
    aim = ""
    if smallest:
        cell = smallest[0]
        aim = (
            f" The aim is 1 s for an unaligned one with little state: it is {shown(cell['duration_ms'] / 1000)} s,"
            f" the longest of {cell['checkpoints']} {shown(cell['duration_ms_max'] / 1000)} s."
        )
    rows: list[list[object]] = []
    for cell in cells:
        head = f"{cell['megabytes']:,} MB, {cell['way']}"
        if "duration_ms" not in cell:
            rows.append([head, cell["failure"], "", "", "", "", ""])
            continue
        rows.append(
            [
                head,
                cell["duration_ms"] / 1000,
                cell["start_delay_ms"] / 1000,
                cell["alignment_ms"] / 1000,
                cell["pause_ms"],
                cell["write_ms"] / 1000,
                cell["in_flight_mb"],
            ]
        )
    heads = ["state", "duration, s", "first barrier, s", "alignment, s", "pause, ms", "write, s"]
    return BACK_PRESSURE.format(
        picture=picture("state_back_pressure", drawn),
        aim=aim,
        table=table([*heads, "in flight, MB"], rows),
    )


def checkpoint_text(figures: Figures, drawn: Sequence[str]) -> str:
    """Pauses and durations of one task's part."""
    rows = [
        [
            f"{row['backend']}, {row['megabytes']:,} MB",
            row["first_pause_ms"],
            row["first_write_s"],
            row["first_written_mb"],
            row["second_pause_ms"],
            row["second_write_s"],
            row["second_written_mb"],
        ]
        for row in by_backend_and_size(figures)
    ]
    heads = ["", "pause, ms", "write, s", "written, MB", "second: pause, ms", "write, s"]
    changed = "The second checkpoint comes after a tenth of the keys was written again."
    if "changed_share" in figures:
        changed = (
            f"From the first checkpoint on only {shown(figures['changed_share'] * 100)} % of the keys is written, over "
            "and over."
        )
    return CHECKPOINT.format(
        changed=changed,
        picture=picture("state_checkpoint", drawn),
        table=table([*heads, "written, MB"], rows),
    )


def increments_text(figures: Figures, _drawn: Sequence[str]) -> str:
    """What each of several increments uploads, by settings."""
    rows = [
        [
            f"{cell['megabytes']:,} MB, {cell['setting']}",
            cell["written_mb"][0],
            ", ".join(map(shown, cell["written_mb"][1:])),
            float(np.mean(cell["written_mb"][1:])),
            max(cell["size_mb"]),
            cell["read_us"],
            cell["scan_s"],
            cell["restore_s"],
        ]
        for cell in figures["cells"]
    ]
    heads = ["state, setting", "first, MB", "increments, MB", "mean", "largest checkpoint, MB"]
    heads += ["read, µs", "all keys, s", "restore, s"]
    return INCREMENTS.format(table=table(heads, rows))


def throughput_text(figures: Figures, drawn: Sequence[str]) -> str:
    """Rates with and without."""
    cells = figures["cells"]
    rows = [
        [
            cell["backend"],
            cell["without_krecords_per_s"],
            cell["with_krecords_per_s"],
            share_text(cell),
            f"{sum(map(is_reached, cell['shares_percent']))} of {len(cell['shares_percent'])}",
            " to ".join(map(shown, np.percentile(cell["shares_percent"], (25, 75)))),
            sum(cell["checkpoints"]),
        ]
        for cell in cells
    ]
    heads = ["", "without, krecords/s", "with", "share, %", "turns that reach the aim"]
    heads += ["middle half of the turns, %", "checkpoints"]
    return THROUGHPUT.format(
        picture=picture("state_throughput", drawn),
        interval_ms=cells[0]["interval_ms"] if cells else 500,
        aim=SHARE_AIM_PERCENT,
        chance=CHANCE,
        table=table(heads, rows),
    )


def is_reached(share_percent: float) -> bool:
    """Whether a share is what is aimed at."""
    return share_percent >= SHARE_AIM_PERCENT


def share_of(cell: Mapping[str, Any]) -> float | None:
    """Return the share of a cell, percent; None where its turns do not decide on which side of the aim it is.

    A sign test: how many of n fair coins would show so few of the other side.
    """
    share, turns = cell["share_percent"], cell["shares_percent"]
    others = sum(is_reached(turn) != is_reached(share) for turn in turns)
    ways = sum(comb(len(turns), count) for count in range(others + 1))
    return share if ways * CHANCE <= 2 ** len(turns) else None


def share_text(cell: Mapping[str, Any]) -> str:
    """Say the share of a cell, percent, and whether it is decided."""
    share = share_of(cell)
    return f"not decided ({shown(cell['share_percent'])})" if share is None else shown(share)


def restore_text(figures: Figures, drawn: Sequence[str]) -> str:
    """Seconds until state is there."""
    names = ("restore_s", "half_s", "savepoint_restore_s", "savepoint_half_s")
    rows = [
        [f"{row['backend']}, {row['megabytes']:,} MB", *(row[name] for name in names)]
        for row in by_backend_and_size(figures)
    ]
    heads = ["", "all, s", "half, s", "all of a savepoint, s", "half of it, s"]
    return RESTORE.format(picture=picture("state_restore", drawn), table=table(heads, rows))


def access_text(figures: Figures, drawn: Sequence[str]) -> str:
    """Microseconds per access."""
    names = ("write_us", "read_us", "read_modify_write_us", "append_us")
    rows = [
        [backend, *(figures[f"{backend}_{name}"] for name in names)]
        for backend in ("heap", "rocksdb")
        if f"{backend}_write_us" in figures
    ]
    heads = ["µs", "write", "read", "read, change, write", "append to a list"]
    return ACCESS.format(picture=picture("state_access", drawn), table=table(heads, rows))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.state.report")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--output", type=Path, default=DOCS / "state_report.md")
    options = parser.parse_args()
    runs = newest(options.results)
    if not runs:
        raise SystemExit(f"{options.results} holds no run: make bench BENCH=state")
    # Here, so that the text alone can be made and tested without it.
    from benchmarks.state.pictures import draw_all

    drawn = draw_all(runs, options.output.parent / "pictures")
    options.output.write_text(write_page(runs, drawn))
    print(f"{options.output} and {len(drawn)} pictures")


if __name__ == "__main__":
    main()
