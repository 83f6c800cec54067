"""Has anything become slower? A few ratios against rivals that do the same work in the same run, below two minutes.

A ratio is the rival's time over ours, the median of paired turns: 0.5 means that we take twice as long. It is processor
time where all the work is in this process, and else time by the clock: what else the machine does falls on both, so
that ratios can be compared with those of `results/quick.json` where absolute figures cannot. One that seems worse than
the tolerance is asked once more, and the better answer counts. Exit code 1 where one still is.

    python -m benchmarks.quick [--accept] [--tolerance 25] [--only exchange state …]

`--accept` stores what was measured (of `--only`, those alone) as what later runs are compared with.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.quick_questions import QUESTIONS
from benchmarks.record import RESULTS, describe_machine

STORED = RESULTS / "quick.json"
TOLERANCE_PERCENT = 25
TURNS = 5


@dataclass(frozen=True)
class Verdict:
    """One question now and as it was stored; None where it was not."""

    question: str
    ratio: float
    stored: float | None
    tolerance_percent: float

    @property
    def change_percent(self) -> float | None:
        """How much better (above 0) or worse it is; None without a stored one."""
        return None if self.stored is None else 100 * (self.ratio / self.stored - 1)

    @property
    def is_worse(self) -> bool:
        """Whether it fell by more than the tolerance."""
        return self.change_percent is not None and self.change_percent < -self.tolerance_percent

    @property
    def text(self) -> str:
        """The verdict in a word."""
        if self.change_percent is None:
            return "new"
        if self.is_worse:
            return "worse"
        return "better" if self.change_percent > self.tolerance_percent else "same"


def compare(
    ratios: Mapping[str, float], stored: Mapping[str, float], tolerance_percent: float
) -> list[Verdict]:
    """Hold what was measured against what is stored, in the order of `ratios`."""
    return [
        Verdict(question, ratio, stored.get(question), tolerance_percent)
        for question, ratio in ratios.items()
    ]


def median_ratio(ours: Callable[[], float], rival: Callable[[], float], turns: int) -> float:
    """Return the median of the rival's seconds over ours, turn by turn, in changing order."""
    ratios: list[float] = []
    for turn in range(turns):
        if turn % 2 == 0:
            own_s = ours()
            rival_s = rival()
        else:
            rival_s = rival()
            own_s = ours()
        ratios.append(rival_s / own_s)
    return statistics.median(ratios)


def ask(question: str) -> float:
    """Return the ratio of one question."""
    with QUESTIONS[question]() as (ours, rival):
        return median_ratio(ours, rival, TURNS)


def show(verdicts: list[Verdict], console: Console) -> None:
    """Print what moved."""
    table = Table(title="the rival's time over ours; more is better")
    for head in ("question", "stored", "now", "change", ""):
        table.add_column(head, justify="left" if head in ("question", "") else "right")
    colors = {"worse": "red", "better": "green", "new": "cyan", "same": ""}
    for verdict in verdicts:
        change = verdict.change_percent
        table.add_row(
            verdict.question,
            "" if verdict.stored is None else f"{verdict.stored:.3f}",
            f"{verdict.ratio:.3f}",
            "" if change is None else f"{change:+.0f} %",
            verdict.text,
            style=colors[verdict.text],
        )
    console.print(table)


def load_stored(file: Path) -> dict[str, float]:
    """Return the stored ratios; none where there are none."""
    return json.loads(file.read_text())["ratios"] if file.exists() else {}


def accept(ratios: Mapping[str, float], file: Path) -> None:
    """Store ratios over those that are stored, with the machine they are of."""
    rounded = {question: round(ratio, 4) for question, ratio in ratios.items()}
    stored = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe_machine(),
        "load_average": round(os.getloadavg()[0], 2),
        "ratios": load_stored(file) | rounded,
    }
    file.write_text(json.dumps(stored, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--accept", action="store_true", help="store what is measured")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE_PERCENT, help="percent")
    parser.add_argument("--only", nargs="+", choices=list(QUESTIONS), default=list(QUESTIONS))
    options = parser.parse_args()
    console = Console()
    stored = {} if options.accept else load_stored(STORED)
    ratios: dict[str, float] = {}
    for question in options.only:
        with console.status(question):
            ratios[question] = ask(question)
            (verdict,) = compare({question: ratios[question]}, stored, options.tolerance)
            if verdict.is_worse:
                ratios[question] = max(ratios[question], ask(question))
    verdicts = compare(ratios, load_stored(STORED), options.tolerance)
    show(verdicts, console)
    if options.accept:
        accept(ratios, STORED)
        console.print(f"stored in {STORED.name}", style="dim")
    elif any(verdict.is_worse for verdict in verdicts):
        raise SystemExit(f"worse by more than {options.tolerance:g} %; --accept stores what is now")


if __name__ == "__main__":
    main()
