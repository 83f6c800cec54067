"""Runs the sections that were asked for and keeps what they gave as one line of results."""

import argparse
import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.network.matrix import CHANNELS, ROW_BYTES, TIMEOUTS_MS, Matrix
from benchmarks.network.peer import TCP, UNIX
from benchmarks.network.sections import SECTIONS, Plan
from benchmarks.record import append_result
from headrace.core.errors import HeadraceError

TABLE_WIDTH = 150
SECTION_SECONDS = 300


@contextmanager
def at_most(seconds: float) -> Generator[None]:
    """Raise TimeoutError in the main thread where the block takes longer, whatever it waits for."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"not done within {seconds:.0f} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, max(0.01, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def numbers(text: str) -> tuple[int, ...]:
    """Read `1,16` as numbers."""
    return tuple(int(part) for part in text.split(","))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.network",
        description="How good is the exchange between TaskManagers, and what does each part cost?",
        epilog="Everything takes about eight minutes. Then: python -m benchmarks.network.report",
    )
    joined = ",".join
    parser.add_argument("--sections", default=joined(SECTIONS), help="default: %(default)s")
    parser.add_argument("--carrier", choices=(UNIX, TCP), default=UNIX)
    parser.add_argument("--channels", type=numbers, default=CHANNELS, metavar="N,…")
    parser.add_argument("--rows", type=numbers, default=ROW_BYTES, metavar="BYTES,…")
    parser.add_argument("--timeouts", type=numbers, default=TIMEOUTS_MS, metavar="MS,…",
                        help="-1 first needs an equals sign: --timeouts=-1,0")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=1.0, help="per cell, after warming up")
    parser.add_argument("--skip-latency", action="store_true", help="no latency at a low rate")
    parser.add_argument("--repeats", type=int, default=3, help="turns of what is compared in pairs")
    parser.add_argument("--disk-directory", help="where stored partitions lie (the temporary one)")
    parser.add_argument("--disk-mb", type=int, default=512)
    parser.add_argument(
        "--minutes", type=float, default=8.8, help="what is not done by then is left out"
    )
    parser.add_argument("--dry", action="store_true", help="print only, keep no result")
    options = parser.parse_args()
    unknown = set(options.sections.split(",")) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {joined(sorted(unknown))}; there are {joined(SECTIONS)}")
    return options


def run(names: list[str], plan: Plan, minutes: float, console: Console) -> dict[str, Any]:
    """Measure, showing how far it is; sections that fail, or for which no time is left, are named as `failed`."""
    end = time.monotonic() + 60 * minutes
    figures: dict[str, Any] = {"load_average_before": round(os.getloadavg()[0], 2)}
    columns = (TextColumn("{task.description:44}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        total = sum(SECTIONS[name].step_count(plan) for name in names)
        task = progress.add_task("", total=total)
        for name in names:
            progress.update(task, description=name)

            def advance(what: str, name: str = name) -> None:
                progress.update(task, advance=1, description=f"{name}: {what}")

            try:
                with at_most(min(SECTION_SECONDS, end - time.monotonic())):
                    figures |= SECTIONS[name].measure(plan, advance)
            except (OSError, RuntimeError, ValueError, HeadraceError):
                # What was measured before, and comes after, is worth keeping.
                console.print_exception()
                figures["failed"] = " ".join([*figures.get("failed", "").split(), name])
    return figures


def show(figures: dict[str, Any], console: Console) -> None:
    """Print a table per section."""
    for name, value in figures.items():
        rows = value if isinstance(value, list) else [value] if isinstance(value, dict) else []
        if not rows:
            continue
        heads = list(dict.fromkeys(key for row in rows for key in row))
        table = Table(title=name)
        for head in heads:
            table.add_column(head.replace("_", " "))
        for row in rows:
            table.add_row(*(str(row.get(head, "")) for head in heads))
        console.print(table)


def main() -> None:
    options = parse_arguments()
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    matrix = Matrix(
        channels=options.channels,
        row_bytes=options.rows,
        timeouts_ms=options.timeouts,
        seconds=options.seconds,
        with_latency=not options.skip_latency,
    )
    plan = Plan(
        options.carrier, matrix, options.repeats, options.disk_directory, options.disk_mb << 20
    )
    figures = run(options.sections.split(","), plan, options.minutes, console)
    show(figures, console)
    if not options.dry:
        append_result("network", figures)
        console.print("Kept. A page of it: python -m benchmarks.network.report", style="dim")
    if "failed" in figures:
        raise SystemExit(f"not measured: {figures['failed']}")


if __name__ == "__main__":
    main()
