"""The chaos suite from the command line: `python -m headrace.testing.chaos --help`."""

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from headrace.testing.chaos.groups import GROUPS
from headrace.testing.chaos.planted_bugs import BUGS, VARIABLE
from headrace.testing.chaos.runner import ChaosRunner, Outcome
from headrace.testing.chaos.scenarios import KILLS, STORAGE

_BUG_TIMEOUT_S: Final = 90.0


def main() -> int:
    """Run what was asked for; 1 where some output was not exact, or some bug was not found."""
    parser = argparse.ArgumentParser(
        prog="python -m headrace.testing.chaos",
        description="Kill TaskManagers of a running job at named moments, and judge what it committed.",
    )
    parser.add_argument("group", nargs="?", default="kills", choices=[*GROUPS, "all", "bugs"])
    parser.add_argument("--repeats", type=int, default=5, help="runs of each moment (default: 5)")
    parser.add_argument("--only", default="", help="runs of `kills` whose name contains this text")
    parser.add_argument("--bug", choices=BUGS, help="plant this bug, which must then be found")
    parser.add_argument("--json", type=Path, help="append outcomes to this file, a line each")
    parser.add_argument("--directory", type=Path, help="keep the files of runs here")
    arguments = parser.parse_args()
    if arguments.group == "all":
        return _run_all(arguments)
    if arguments.group == "bugs":
        return max(_run_self(["kills", "--bug", bug], arguments) for bug in BUGS)
    if arguments.bug:
        return _run_with_bug(arguments)
    return _report(_run_group(arguments))


def _run_all(arguments: argparse.Namespace) -> int:
    codes = [
        _run_self([name, "--repeats", str(arguments.repeats)], arguments)
        for name in GROUPS
        if name != "smoke"
    ]
    return max(*codes, _run_self(["bugs"], arguments))


def _run_self(extra: list[str], arguments: argparse.Namespace) -> int:
    """A process of its own: one Spark application, one set of settings, one planted bug."""
    print(f"== {' '.join(extra)}", flush=True)
    kept = ["--json", str(arguments.json)] if arguments.json else []
    return subprocess.call([sys.executable, "-m", "headrace.testing.chaos", *extra, *kept])


def _run_group(arguments: argparse.Namespace) -> list[Outcome]:
    group = GROUPS[arguments.group]
    outcomes: list[Outcome] = []
    with (
        tempfile.TemporaryDirectory(prefix="headrace-chaos-") as scratch,
        ChaosRunner(
            arguments.directory or Path(scratch) / "runs", group.settings, group.job
        ) as runner,
    ):
        if arguments.only:
            chosen = [scenario for scenario in KILLS if arguments.only in scenario.name]
            runs = (
                runner.run(one, number) for one in chosen for number in range(arguments.repeats)
            )
        else:
            runs = group.runs(runner, arguments.repeats)
        for outcome in runs:
            print(line_of(outcome), flush=True)
            outcomes.append(outcome)
            _keep(arguments, {"group": arguments.group, **dataclasses.asdict(outcome)})
    return outcomes


def _run_with_bug(arguments: argparse.Namespace) -> int:
    """The bug is found where at least one run is not exact."""
    os.environ[VARIABLE] = arguments.bug
    settings = {"execution.checkpointing.tolerable-failed-checkpoints": "3"}
    with (
        tempfile.TemporaryDirectory(prefix="headrace-chaos-") as scratch,
        ChaosRunner(Path(scratch) / "runs", settings, timeout_s=_BUG_TIMEOUT_S) as runner,
    ):
        for scenario in (*STORAGE, *(one for one in KILLS if one.name == "ack sent")):
            outcome = runner.run(scenario, 0)
            if not outcome.is_exact:
                print(f"{arguments.bug}: found ({outcome.mistakes[0][:200]})", flush=True)
                _keep(arguments, {"bug": arguments.bug, "found_by": outcome.mistakes[0][:200]})
                return 0
    print(f"{arguments.bug}: NOT FOUND", flush=True)
    _keep(arguments, {"bug": arguments.bug, "found_by": ""})
    return 1


def _report(outcomes: list[Outcome]) -> int:
    times = [one.recovery_s for one in outcomes if one.recovery_s is not None]
    if times:
        print(f"recovery: median {statistics.median(times):.1f} s of {len(times)}")
    failed = sum(not outcome.is_exact for outcome in outcomes)
    print(f"{len(outcomes) - failed} of {len(outcomes)} runs exact")
    return 1 if failed or not outcomes else 0


def _keep(arguments: argparse.Namespace, line: dict[str, object]) -> None:
    if arguments.json:
        with arguments.json.open("a") as file:
            file.write(json.dumps(line) + "\n")


def line_of(outcome: Outcome) -> str:
    """One run for people."""
    recovery = "" if outcome.recovery_s is None else f", recovered in {outcome.recovery_s:.1f} s"
    verdict = "exact" if outcome.is_exact else "; ".join(outcome.mistakes)[:600]
    return (
        f"{outcome.scenario} #{outcome.repeat}: {verdict} "
        f"({outcome.duration_s:.1f} s, {outcome.kill_count} killed{recovery})"
    )


if __name__ == "__main__":
    sys.exit(main())
