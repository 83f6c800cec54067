"""How many Nexmark rows per second does each query take, on two TaskManagers with exactly-once checkpoints?

    python -m benchmarks.nexmark [q1 q7 ...] [--peers duckdb flink ...] [--events 20000000] [--repeats 3] [--local]

Headrace and its peers take turns over the same files; without `--peers` there is DuckDB alone, the batch ceiling, and
`--peers all` means all of `peers/registry.py`, where it also stands what each of them reads and writes, by which clock,
and who is given fewer events or turns. Rows are those of the kinds a query reads. `--local`: both TaskManagers in one
process, without Spark; the figures say which it was. The first turn of each peer compares its results with DuckDB's;
a peer that fails is named, and the others go on. A page of it: `python -m benchmarks.nexmark.report`.

Each turn that was taken is kept below `--root`, so what was interrupted goes on where it was. `--minutes 7` begins no
turn after that time and exits with 3 where some are left: the same command again takes them.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.nexmark.arguments import events_argument, refuse_unknown, turns_argument
from benchmarks.nexmark.files import events_directory
from benchmarks.nexmark.peers.measure import READS
from benchmarks.nexmark.peers.registry import DUCKDB, HEADRACE, PEERS
from benchmarks.nexmark.peers.setup import peer_python
from benchmarks.nexmark.peers.turns import (
    Figures,
    OutOfTimeError,
    Plan,
    TakenTurns,
    answers,
    measure,
    turn_count,
)
from benchmarks.nexmark.queries import QUERIES
from benchmarks.record import record_result

ALL = "all"
NOT_DONE = 3
"""Exit code: turns are left."""


def parse_arguments() -> argparse.Namespace:
    """Return the arguments; `peers` and `queries` are complete."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nexmark",
        description=str(__doc__).partition("\n")[0],
        epilog="Then the page: python -m benchmarks.nexmark.report",
    )
    parser.add_argument("queries", nargs="*", help="q1 q7 … (all that every peer answers)")
    parser.add_argument(
        "--peers", nargs="+", choices=[ALL, *PEERS], default=[DUCKDB], metavar="peer",
        help=f"beside Headrace: {ALL}, or some of {' '.join(PEERS)} ({DUCKDB}); each is installed once, into an "
        "environment of its own",
    )  # fmt: skip
    parser.add_argument(
        "--events",
        type=events_argument,
        default=20_000_000,
        help="(%(default)s); slow peers get fewer",
    )
    parser.add_argument(
        "--repeats",
        type=turns_argument,
        default=3,
        help="turns of each (%(default)s); medians count",
    )
    parser.add_argument(
        "--local", action="store_true", help="Headrace in one process, without Spark"
    )
    parser.add_argument(
        "--minutes", type=float, help="begin no turn after so long, exit with 3 if some are left"
    )
    parser.add_argument(
        "--root", type=Path, default=Path(tempfile.gettempdir()) / "nexmark",
        help="where the events lie, which are made once (%(default)s)",
    )  # fmt: skip
    options = parser.parse_args()
    chosen = set(PEERS) if ALL in options.peers else {HEADRACE, *options.peers}
    options.peers = [peer for name, peer in PEERS.items() if name in chosen]
    with_all = all(peer.queries is None for peer in options.peers)
    options.queries = options.queries or list(QUERIES if with_all else READS)
    refuse_unknown(parser, options.queries)
    return options


def prepare(options: argparse.Namespace, plan: Plan) -> None:
    """Make environments and events, none of which belongs to a turn."""
    for peer in [PEERS[DUCKDB], *options.peers]:
        peer_python(peer)
    for peer in options.peers:
        for query in options.queries:
            kinds = QUERIES[query].reads
            events_directory(plan.root, plan.events_of(peer, query), kinds=kinds)
            events_directory(plan.root, plan.warm_up_events_of(peer, query), kinds=kinds)


def wrong(figures: Figures) -> list[str]:
    """Return what a query's figures say of peers that failed or gave other results."""
    failed = [f"{name} failed: {why}" for name, why in figures.get("failed", {}).items()]
    different = [key for key, value in figures.items() if key.endswith("_same") and not value]
    return failed + [f"{key.removesuffix('_same')} gave other results" for key in different]


def main() -> None:
    """Measure the queries named, or all that every peer answers."""
    options = parse_arguments()
    plan = Plan(options.root, options.events, options.repeats, options.local)
    options.root.mkdir(parents=True, exist_ok=True)
    prepare(options, plan)
    columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    problems: list[str] = []
    measured: list[Figures] = []
    seconds = None if options.minutes is None else options.minutes * 60
    taken = TakenTurns(options.root, seconds)
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        total = sum(turn_count(plan, options.peers, query) for query in options.queries)
        task = progress.add_task("", total=total)
        for query in options.queries:

            def advance(what: str) -> None:
                progress.update(task, advance=1, description=what)

            able = [peer for peer in options.peers if answers(peer, query)]
            try:
                figures = measure(plan, able, query, advance, taken)
            except OutOfTimeError as error:
                console.print(f"next: {error}; run the same command again", markup=False)
                sys.exit(NOT_DONE)
            measured.append(figures)
            problems += [f"{query}: {problem}" for problem in wrong(figures)]
    for figures in measured:
        record_result("nexmark", figures)
    taken.forget()
    for problem in problems:
        console.print(problem, style="red", markup=False, soft_wrap=True)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
