"""Makes docs/growth_report.md, with pictures, of the newest results.

python -m benchmarks.growth.report
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.growth.series import RESULTS_NAME, Series, newest_series
from benchmarks.page import DOCS, run_text, shown
from benchmarks.record import RESULTS

SPEED_UP_AIM = 1.7
"""From one TaskManager to two, on two cores."""
SLACK = 0.2
"""How far above a linear one the slope of the last sizes may be before a step counts as faster than linear."""
Lines = Sequence[Mapping[str, Any]]

INTRODUCTION = """\
# How cost grows

Made by `python -m benchmarks.growth.report` of the newest figures that `make bench BENCH=growth` kept. How each figure
is taken stands at the head of its file in `benchmarks/growth/`. The slope is the exponent b of the power law size^b
that is nearest on logarithmic axes, over all sizes and over the last three, where fixed costs weigh least. A step is
linear where the cost of a whole grows with slope 1, and that of each item with 0; it counts as faster where the slope
at the end is more than {slack} above that.
"""
EXPLANATIONS = {
    "task_managers": """\
With one TaskManager every row stays in its process; with two, half of them are serialised, sent and received, by
threads that share the interpreter with the task. What is missing to twice the rate is that, and the driver and its JVM,
which run on the same cores.""",
    "keys": """\
State on the heap is a dictionary per state and key group: an access costs the same however many keys there are, until
entries no longer fit the processor's caches; then each access waits for memory. RocksDB looks into its block cache and
a few sorted files, which grow in number with the logarithm of the size; where the keys' blocks no longer fit the cache
(128 MB), most accesses read one from a file and decompress it. Columns are counted by a hash table that is made of each
portion, and merged: where there are nearly as many keys as rows, nothing is saved by counting a portion first, each key
is a row once more at every step, and the tables no longer fit the caches either.""",
    "key_bytes": """\
Of a key with a count. On the heap: the two numbers and their place in a dictionary, which has free places from each
doubling on. RocksDB's memory has a bound, its block cache and what writes wait in (128 MB), which is much for few keys
and little for many; the rest lies on disk, compressed, with ten bits of a filter for each key.""",
    "panes": """\
On columns a row is counted once, in its pane, and each window that fires merges as many panes as it has: the merging
grows with panes times keys, the counting does not, so that the slope goes from 0 towards 1. Record by record, a record
is put into as many windows as it lies in, as in Flink: slope 1 by definition.""",
    "channels": """\
A row is hashed, sorted by its channel and copied to the others of that channel. Full batches have 128 KB where there
are few channels and 32 KB, the least segment, from a thousand on, so that the fixed cost of a batch is paid four times
as often; from there on it stays. With a timeout the rows of 100 ms are divided among all channels: with thousands of
them a batch holds a few dozen rows.""",
    "tasks": """\
The control plane does the same for each task, whatever else there is: a descriptor, a deployment, four state changes;
for a checkpoint a trigger or a barrier and an acknowledgement. Graphs are joined one to one here; where an exchange
joins all with all, it has as many edges as there are pairs, and they are data of one partition, not calls.""",
}
TITLES = {
    "task_managers": "TaskManagers",
    "keys": "Keys",
    "key_bytes": "Bytes of a key",
    "panes": "Panes of a window",
    "channels": "Channels",
    "tasks": "Tasks of a job",
}


def write_page(lines: Lines, drawn: Sequence[str]) -> str:
    """Return the page; questions without an answer are left out."""
    found = newest_series(lines)
    parts = [INTRODUCTION.format(slack=SLACK), summary(found)]
    for question, title in TITLES.items():
        own = [series for series in found if series.question == question]
        if not own:
            continue
        text = [f"## {title}", ""]
        if f"growth_{question}" in drawn:
            text += [f"![{title}](pictures/growth_{question}.svg)", ""]
        text += [EXPLANATIONS[question], "", table(own), "", *runs_of(lines, question)]
        parts.append("\n".join(text))
    return "\n".join(parts)


def runs_of(lines: Lines, question: str) -> list[str]:
    """Say of each run that the newest series of a question are of when, where and how quietly it was made."""
    newest: dict[str, Mapping[str, Any]] = {}
    for line in lines:
        for fields in line["figures"]["series"]:
            if fields["question"] == question:
                newest[fields["name"]] = line
    texts = [
        run_text({**line, "load_average_before": line["figures"]["load_average_before"]})
        for line in newest.values()
    ]
    return list(dict.fromkeys(texts))


def summary(found: Sequence[Series]) -> str:
    """Say which steps grow faster than linear, and whether a second TaskManager gives what it should."""
    steep = [one for one in found if is_faster_than_linear(one)]
    text = "No step grows faster than linear.\n"
    if steep:
        text = "These grow faster than linear: " + ", ".join(
            f"{TITLES[one.question].lower()}, {one.name} (slope {one.last_exponent:.2f} at the end)"
            for one in steep
        )
        text += ".\n"
    for one in found:
        if one.question == "task_managers":
            ratio = one.values[-1] / one.values[0]
            verdict = "reached" if ratio >= SPEED_UP_AIM else "missed"
            text += (
                f"\nA second TaskManager makes it {ratio:.2f} times as fast;"
                f" the aim of {SPEED_UP_AIM} is {verdict}.\n"
            )
            if ratio > 2:
                text += "More than twice is the machine's own unrest: two processors give no more than that.\n"
    return text


def is_faster_than_linear(series: Series) -> bool:
    """Whether the last sizes say so. More records per second with more processes are no cost."""
    return series.question != "task_managers" and series.last_exponent > series.linear + SLACK


def table(own: Sequence[Series]) -> str:
    """A row for each series, a column for each size, and the slopes."""
    sizes = sorted({size for series in own for size in series.sizes})
    head = f"| {own[0].size_name}: | " + " | ".join(f"{size:,.0f}" for size in sizes)
    lines = [
        f"{head} | slope | at the end | linear |",
        "| --- |" + " ---: |" * (len(sizes) + 3),
    ]
    for series in own:
        values = dict(zip(series.sizes, series.values, strict=True))
        cells = [shown(values[size]) if size in values else "" for size in sizes]
        slopes = [f"{series.exponent:.2f}", f"{series.last_exponent:.2f}", f"{series.linear:g}"]
        lines.append(f"| {series.name}, {series.unit} | " + " | ".join([*cells, *slopes]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth.report")
    parser.add_argument("--results", type=Path, default=RESULTS / f"{RESULTS_NAME}.jsonl")
    parser.add_argument("--output", type=Path, default=DOCS / "growth_report.md")
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.results.read_text().splitlines()]
    # Here, so that the text alone can be made and tested without it.
    from benchmarks.growth.pictures import draw_all

    drawn = draw_all(newest_series(lines), options.output.parent / "pictures")
    options.output.write_text(write_page(lines, drawn))
    print(f"{options.output} and {len(drawn)} pictures")


if __name__ == "__main__":
    main()
