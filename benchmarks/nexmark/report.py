"""Makes docs/nexmark_report.md, with pictures, of the newest figures of each query.

python -m benchmarks.nexmark.report
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.nexmark.aims import aims_text
from benchmarks.nexmark.checks import checks_text, newest_checks
from benchmarks.nexmark.flames import Stacks, flames_text, profiles
from benchmarks.nexmark.multiples import (
    LEAST_CHECKPOINTS,
    LEAST_EVENTS,
    LEAST_TURNS,
    PROTOCOL,
    doubts,
    in_turns,
    multiple,
)
from benchmarks.nexmark.peers.measure import READS
from benchmarks.nexmark.peers.registry import CHECKPOINT_MS, HEADRACE, PEERS, Peer
from benchmarks.page import BUSY_LOAD, DOCS, picture, shown, table
from benchmarks.record import RESULTS, read_results

Line = Mapping[str, Any]

INTRODUCTION = """\
# Nexmark: Headrace beside other engines

Made by `python -m benchmarks.nexmark.report` of the newest figures that `python -m benchmarks.nexmark --peers …`
kept, of those engines that were measured. The engines take turns on one machine, with two workers or threads each, over
the same seeded events; each turn is a process of its own. Figures are medians of the turns. The programs are in
`benchmarks/nexmark/peers/`.
"""
NOT_MEASURED = """\
## Rows per second

No figures are kept that were measured as this page tells: several turns, checkpoints counted within the time, DuckDB
and polars in their best form. `python -m benchmarks.nexmark --peers all` measures them.
"""
RUNS = """\
## When, where and of how much

{table}

A query's row is of one run, but for the engines that are said to be of others. The load is the highest average before a
turn. From {busy} on something used the machine before, be it the turn of another engine: processor seconds, below, are
less affected by it than rates.
"""
READ_AND_WRITTEN = """\
## What each of them keeps, reads, writes and is timed by

{table}

Events are out of order by up to three seconds, watermarks are four seconds behind: no row is late and none is dropped,
and every engine must give the same rows. In its first turn each of them gives its results of up to {checked:,} events
(half of what it is given, or less) to DuckDB, which compares them with its own answer row for row: a rate without a
mark is one of the same results. For `q7`, whole rows of the highest bids, Flink SQL and Spark take forms that would
keep one of several equal bids, as they are the quicker ones; these events have no such bids.
{fewer}"""
FEWER = """
Who would take many minutes was given fewer events than the others:
{cells}.

A job's fixed costs, the start of Python processes among them, weigh more there, and fewer windows are full.
"""
RATES = """\
## Rows per second

{picture}

Million rows of those kinds that a query reads, per second; `cp`: checkpoints that were completed within that time, at
least, in each turn. In brackets: how many times that Headrace takes. There is no such multiple where one of the two has
fewer than {turns} turns, {events:,} events or, if it takes them at all, {least} checkpoints: the figure says which.

- Headrace's main form takes checkpoints as often as {often} times a second, so that short jobs have enough of them.
- Where the host of a virtual machine takes memory back that nobody uses, touching it anew costs far more than
  elsewhere, and most whoever needs gigabytes: hence the second form of Flink.
- "–" stands where an engine was not measured. PyFlink, bytewax and pathway run Python functions, PyFlink record by
  record; Headrace runs expressions over columns here. [Functions in Python](python_report.md) has the same function on
  PyFlink and Headrace.
- In `q1`, `q2` and `q7` bytewax's functions are calls of pyarrow, one for each row group.
- In `q5` all of them but PyFlink, bytewax and pathway count bids once for each pane of two seconds, which five windows
  share; in `q11` DuckDB and polars put buckets as long as the gap in order, and not bids.

{table}
{apart}"""
APART = """
Measured in other turns with Headrace, and perhaps on another machine, and so without a multiple: {cells}.
"""
COSTS = """\
## Processor seconds per million rows

{picture}

Of all processes of the engine, while the job runs. Two cores give two processor seconds in a second; what Headrace
takes before and behind the time of its clock, as for making the program's graph, counts here too.

{table}
"""
MEMORY = """\
## Peak memory, MB

Resident memory of all processes that no file backs. Headrace, Flink and Spark have JVMs, which take what they are
given. Flink's holds its input several times over, see below: of what it needs itself these figures are no measure.

{table}
"""
STATE = """\
## A large state

{table}

`{query}` counts the different bidders and auctions of each channel and day: until the day is over it keeps every pair
of a channel and a bidder or an auction, which are the keys here. One process holds driver and both TaskManagers;
its memory is what it had at most while it read, and at rest afterwards. The checkpoint is one of the whole state, at
rest; tasks pause while it is taken, not while it is written. The last column is the longest of those each second while
rows came in.

By the difference of first and last, a key takes {peak_bytes:,.0f} bytes of memory at most, {resting_bytes:,.0f} at
rest, and {checkpoint_bytes:,.0f} of a checkpoint. The load average before it all was {load}, behind it {load_after}:
the larger it is, the less durations say.
"""
STATE_HEADS = (
    "events",
    "keys",
    "peak memory, MB",
    "at rest, MB",
    "checkpoint, MB",
    "its duration, ms",
    "its pause, ms",
    "longest before, ms",
)
STATE_CELLS = (
    "events",
    "keys",
    "peak_mb",
    "resting_mb",
    "checkpoint_mb",
    "checkpoint_ms",
    "pause_ms",
    "longest_before_ms",
)
TROUBLE = """\
## What did not work

{rows}
"""


def newest(results: Path) -> dict[str, dict[str, Any]]:
    """Return the newest line of each query that several engines answered on Spark, in the order of queries.

    Lines before it, and later ones of one peer beside Headrace, add those peers that it has no figures of.
    """
    found: dict[str, dict[str, Any]] = {}
    for line in read_results("nexmark", results):
        figures = line["figures"]
        if figures.get("host") != "spark" or figures.get("protocol") != PROTOCOL:
            continue
        query = figures["query"]
        before = found.get(query)
        if len(engines([line])) > 2:
            found[query] = line if before is None else with_peers(line, before)
        elif before is not None:
            found[query] = with_peers(before, line)
    return {query: found[query] for query in READS if query in found}


def with_peers(line: Line, other: Line) -> dict[str, Any]:
    """Return a line with those peers of another one that it has no figures of."""
    figures = dict(line["figures"])
    more = [
        peer.name
        for peer in PEERS.values()
        if f"{peer.name}_ratio" in other["figures"] and f"{peer.name}_peak_mb" not in figures
    ]
    if not more:
        return dict(line)
    taken = tuple(f"{name}_" for name in more)
    figures |= {key: value for key, value in other["figures"].items() if key.startswith(taken)}
    figures["failed"] = {
        name: why for name, why in figures.get("failed", {}).items() if name not in more
    }
    return dict(line) | {"figures": figures}


def newest_state(results: Path) -> Line | None:
    """Return the newest line that says what the state of a query grew to."""
    found = [line for line in read_results("nexmark", results) if "state" in line["figures"]]
    return found[-1] if found else None


def engines(lines: Sequence[Line]) -> list[Peer]:
    """Return who has figures in any of these lines, or failed there."""
    return [
        peer
        for peer in PEERS.values()
        if any(
            f"{peer.name}_peak_mb" in line["figures"]
            or peer.name in line["figures"].get("failed", {})
            for line in lines
        )
    ]


def rate(line: Line, peer: Peer) -> str:
    """Return million rows per second, checkpoints, and the multiple or why there is none, or what there is instead."""
    figures = line["figures"]
    if f"{peer.name}_rows_per_second" not in figures:
        return "failed" if peer.name in figures.get("failed", {}) else "–"
    text = shown(figures[f"{peer.name}_rows_per_second"] / 1e6)
    doubted = doubts(figures, peer.name)
    notes = doubted
    taken = figures.get(f"{peer.name}_checkpoints")
    if taken is not None and not any(note.startswith("only") for note in doubted):
        notes = [*doubted, f"{taken} cp"]
    text = ", ".join([text, *notes])
    times = multiple(figures, peer.name)
    if times is not None:
        text += f" (× {shown(times)})"
    return text if figures.get(f"{peer.name}_same", True) else f"{text} OTHER RESULTS"


def what_they_do(peers: Sequence[Peer]) -> list[list[str]]:
    """Return the rows of the table that say what the rates beneath them hold."""
    return [
        ["keeps", *(peer.keeps for peer in peers)],
        ["reads", *(peer.reads for peer in peers)],
        ["writes", *(peer.writes for peer in peers)],
        ["drops", *("nothing" for _ in peers)],
    ]


def number(line: Line, peer: Peer, key: str) -> str:
    """Return a figure of a peer, or a dash."""
    value = line["figures"].get(f"{peer.name}_{key}")
    return "–" if value is None else shown(value)


def write_page(
    lines: Mapping[str, Line],
    drawn: Sequence[str],
    stacks: Mapping[str, Stacks],
    state: Line | None = None,
    checks: Sequence[Line] = (),
) -> str:
    """Return the report.

    `stacks` are the profiles of queries, `state` what the state of one grew to, `checks` what DuckDB said of results.
    """
    if not lines:
        rest = [checks_text(checks), "" if state is None else state_text(state)]
        rest += [flames_text(stacks, drawn), read_and_written(lines, list(PEERS.values()))]
        return "\n".join(part for part in [INTRODUCTION, NOT_MEASURED, *rest] if part)
    peers = engines(list(lines.values()))
    heads = ["", *(peer.title for peer in peers)]
    rates = [[query, *(rate(line, peer) for peer in peers)] for query, line in lines.items()]
    costs, memory = (
        [[query, *(number(line, peer, key) for peer in peers)] for query, line in lines.items()]
        for key in ("cpu_seconds_per_mrow", "peak_mb")
    )
    parts = [
        INTRODUCTION,
        runs_text(lines),
        RATES.format(
            picture=picture("nexmark_rates", drawn),
            table=table(heads, [*what_they_do(peers), *rates]),
            apart=apart(lines),
            often=1000 // CHECKPOINT_MS,
            turns=LEAST_TURNS,
            events=LEAST_EVENTS,
            least=LEAST_CHECKPOINTS,
        ),
        aims_text(lines),
        checks_text(checks),
        COSTS.format(picture=picture("nexmark_costs", drawn), table=table(heads, costs)),
        MEMORY.format(table=table(heads, memory)),
        "" if state is None else state_text(state),
        flames_text(stacks, drawn),
        read_and_written(lines, peers),
        trouble(lines),
    ]
    return "\n".join(part for part in parts if part)


def runs_text(lines: Mapping[str, Line]) -> str:
    """Say of each query when, where, over how many events, how often and how quietly it was measured."""
    heads = ["", "day", "machine", "events", "turns of Headrace", "load"]
    rows = [
        [
            query,
            line["date"],
            line["machine"],
            f"{line['figures']['events']:,}",
            line["figures"].get(f"{HEADRACE}_turns", "–"),
            _load(line),
        ]
        for query, line in lines.items()
    ]
    return RUNS.format(table=table(heads, rows, numbers=False), busy=BUSY_LOAD)


def _load(line: Line) -> Any:
    """Return the highest load average before a turn of any engine."""
    turns = [value for key, value in line["figures"].items() if key.endswith("_load_before")]
    return max(turns)


def apart(lines: Mapping[str, Line]) -> str:
    """Say who was not measured in turns with all others."""
    queries: dict[str, list[str]] = {}
    for query, line in lines.items():
        for peer in engines([line]):
            if not in_turns(line["figures"], peer.name):
                queries.setdefault(peer.title, []).append(query)
    cells = [f"{title} ({', '.join(those)})" for title, those in queries.items()]
    return APART.format(cells="; ".join(cells)) if cells else ""


def read_and_written(lines: Mapping[str, Line], peers: Sequence[Peer]) -> str:
    """Say of each engine its version, input, output and clock."""
    rows = [
        [
            peer.title,
            version(lines, peer),
            given(lines, peer),
            peer.keeps,
            peer.reads,
            peer.writes,
            peer.clock,
        ]
        for peer in peers
    ]
    heads = ["", "version", "events, turns", "keeps", "reads", "writes", "timed by"]
    return READ_AND_WRITTEN.format(
        table=table(heads, rows, numbers=False),
        checked=max((peer.warm_up_max for peer in peers), default=0),
        fewer=fewer_events(lines, peers),
    )


def fewer_events(lines: Mapping[str, Line], peers: Sequence[Peer]) -> str:
    """Say who was given fewer events of a query than the others."""
    cells: list[str] = []
    for peer in peers:
        given = {
            query: line["figures"][f"{peer.name}_events"]
            for query, line in lines.items()
            if line["figures"].get(f"{peer.name}_events", line["figures"]["events"])
            < line["figures"]["events"]
        }
        by_count = [
            f"{count:,} of {', '.join(query for query in given if given[query] == count)}"
            for count in sorted(set(given.values()), reverse=True)
        ]
        cells += [f"{peer.title} {' and '.join(by_count)}"] if by_count else []
    return FEWER.format(cells=";\n".join(cells)) if cells else ""


def state_text(line: Line) -> str:
    """Say what the state of a query grew to, and what checkpoints of it took."""
    figures = line["figures"]
    return STATE.format(
        table=table(STATE_HEADS, [[run[cell] for cell in STATE_CELLS] for run in figures["state"]]),
        query=figures["query"],
        peak_bytes=figures["peak_bytes_per_key"],
        resting_bytes=figures["resting_bytes_per_key"],
        checkpoint_bytes=figures["checkpoint_bytes_per_key"],
        load=line["load_average_before"],
        load_after=line["load_average"],
    )


def version(lines: Mapping[str, Line], peer: Peer) -> str:
    """Return the versions that a peer said it was."""
    said = [line["figures"].get(f"{peer.name}_version") for line in lines.values()]
    return next((text for text in reversed(said) if text), "–")


def given(lines: Mapping[str, Line], peer: Peer) -> str:
    """Return how many events and turns a peer was given."""
    counts = [
        [
            line["figures"][f"{peer.name}_{key}"]
            for line in lines.values()
            if f"{peer.name}_{key}" in line["figures"]
        ]
        for key in ("events", "turns")
    ]
    return ", ".join(
        " to ".join(f"{one:,}" for one in sorted({min(values), max(values)}))
        for values in counts
        if values
    )


def trouble(lines: Mapping[str, Line]) -> str:
    """Name who failed and why."""
    rows = [
        f"- {query}, {PEERS[name].title}: {why}"
        for query, line in lines.items()
        for name, why in line["figures"].get("failed", {}).items()
    ]
    return TROUBLE.format(rows="\n".join(rows)) if rows else ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nexmark.report")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--output", type=Path, default=DOCS / "nexmark_report.md")
    options = parser.parse_args()
    lines = newest(options.results)
    # Here, so that the text alone can be made and tested without it.
    from benchmarks.nexmark.pictures import draw_all

    stacks = profiles(options.results / "flames")
    drawn = draw_all(lines, stacks, options.output.parent / "pictures")
    state, checks = newest_state(options.results), newest_checks(options.results)
    options.output.write_text(write_page(lines, drawn, stacks, state, checks))
    print(f"{options.output} and {len(drawn)} pictures")


if __name__ == "__main__":
    main()
