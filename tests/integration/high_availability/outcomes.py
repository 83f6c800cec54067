"""Outcomes of runs in which drivers are killed, as the chaos suite keeps them, and the command line of such runs."""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """What came of one run.

    `failover_s`: from the kill, or from ZooKeeper's return, until all tasks run, or until the next one leads; 0 where
    the job went on without a restart.
    """

    what: str
    failover_s: float
    mistakes: tuple[str, ...] = ()
    bound_s: float = 12.0
    kill_count: int = 1
    note: str = ""

    def judged(self) -> "Outcome":
        """Return the outcome with a late failover as a mistake; a busy machine is no excuse here."""
        if self.failover_s <= self.bound_s:
            return self
        late = f"it took {self.failover_s:.1f} s, and {self.bound_s:g} s are the bound"
        return replace(self, mistakes=(*self.mistakes, late))

    def line(
        self, group: str, repeat: int, duration_s: float, load_average: float
    ) -> dict[str, Any]:
        """Return the run as the chaos suite keeps runs."""
        load = f"load average {load_average:.1f} before"
        return {
            "group": group,
            "scenario": self.what,
            "repeat": repeat,
            "duration_s": round(duration_s, 1),
            "disturbance_count": self.kill_count,
            "recoveries_s": [round(self.failover_s, 4)] if self.failover_s else [],
            "note": f"{self.note}; {load}" if self.note else load,
            "mistakes": list(self.mistakes),
        }


def slack_s() -> float:
    """Return the seconds over a bound that are granted a machine which does much else: none where it does not."""
    return 0.0 if os.getloadavg()[0] <= (os.cpu_count() or 1) else 30.0


def run_all(
    runs: Iterable[tuple[str, Callable[[Path], Outcome]]], group: str, description: str
) -> int:
    """Do runs as the command line asks for; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--json", type=Path, help="append outcomes to this file, a line each")
    options = parser.parse_args()
    mistakes = 0
    for name, run in runs:
        if options.only not in name:
            continue
        for repeat in range(options.repeats):
            load = os.getloadavg()[0]
            begun_s = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="headrace-leaders-") as folder:
                try:
                    outcome = run(Path(folder)).judged()
                except AssertionError as error:
                    # The others are of interest all the same.
                    outcome = Outcome(name, 0.0, (str(error),))
            mistakes += len(outcome.mistakes)
            line = outcome.line(group, repeat, time.monotonic() - begun_s, load)
            print(
                f"{outcome.what} #{repeat}: {outcome.failover_s:.1f} s {line['mistakes']} ({line['note']})",
                flush=True,
            )
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    return 1 if mistakes else 0
