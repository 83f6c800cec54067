"""The chaos suite from the command line: `python -m testkit.chaos --help`."""

import argparse
import dataclasses
import datetime
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from testkit.chaos.groups import GROUPS
from testkit.chaos.planted_bugs import BUGS, VARIABLE, plant_from_environment
from testkit.chaos.runner import SEED, ChaosRunner, Outcome
from testkit.chaos.searches import SEARCHES

_BUG_TIMEOUT_S: Final = 90.0
_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_DRIVER_KILLS: Final = {
    "leaders": "tests.integration.high_availability.leader_kills",
    "takeovers": "tests.spark.driver_takeovers",
    "dataframes": "tests.spark.dataframe_kills",
}
"""Parts that need drivers of the tests, and the module with the runs of each."""
_REPEATS: Final = 5
_PARTS: Final = tuple(name for name in GROUPS if name != "smoke")


def main() -> int:
    """Run the requested parts; return 1 if some output was not exact, or some bug was not found."""
    parser = argparse.ArgumentParser(
        prog="python -m testkit.chaos",
        description="Kill TaskManagers of a running job at named moments, and judge what it committed.",
    )
    parser.add_argument("group", nargs="*", default=["kills"], help=", ".join(_CHOICES))
    parser.add_argument(
        "--repeats", type=int, help="runs of each moment (default: 5, for kills of drivers 3)"
    )
    parser.add_argument("--only", default="", help="runs or bugs whose name contains this text")
    parser.add_argument("--bug", choices=BUGS, help="plant this bug, which must then be found")
    parser.add_argument("--seed", type=int, default=SEED, help=f"(default: {SEED})")
    parser.add_argument("--json", type=Path, help="append outcomes to this file, a line each")
    parser.add_argument("--log", type=Path, help="lines of the log (default: beside --json)")
    parser.add_argument(
        "--directory", type=Path, help="keep the files of runs here, in one folder per part or bug"
    )
    arguments = parser.parse_args()
    if arguments.json:
        # Lost calls to killed processes are expected; progress must stay readable.
        log = arguments.log or arguments.json.with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        logging.basicConfig(filename=log, format=_LOG_FORMAT)
    wanted: list[str] = arguments.group
    if unknown := sorted({*wanted} - {*_CHOICES}):
        parser.error(f"there is no group {', '.join(unknown)}: choose from {', '.join(_CHOICES)}")
    if arguments.bug:
        return _search(arguments)
    if len(wanted) == 1 and wanted[0] in _DRIVER_KILLS:
        return _kill_drivers(wanted[0], arguments)
    if wanted == ["all"]:
        wanted = [*_PARTS, *_DRIVER_KILLS, "bugs"]
    wanted = [name for name in wanted if _is_anything_called(arguments.only, name)]
    if not wanted:
        parser.error(f"no run or bug is called {arguments.only!r}")
    if len(wanted) > 1:
        return _run_parts(wanted, arguments)
    return _run_bugs(arguments) if wanted == ["bugs"] else _run_group(wanted[0], arguments)


_CHOICES: Final = (*GROUPS, *_DRIVER_KILLS, "bugs", "all")


def _is_anything_called(text: str, part: str) -> bool:
    """Return whether the part has a run, or a bug, whose name contains `text`; runs of drivers have other names."""
    if part in _DRIVER_KILLS:
        return not text
    return bool(_bugs_called(text) if part == "bugs" else GROUPS[part].count(1, text))


def _bugs_called(text: str) -> list[str]:
    return [bug for bug in BUGS if text in bug]


def _run_parts(names: list[str], arguments: argparse.Namespace) -> int:
    codes: list[int] = []
    started = time.monotonic()
    for number, name in enumerate(names, 1):
        print(f"== {name} (part {number} of {len(names)})", flush=True)
        extra = [name, *_repeats(arguments), "--only", arguments.only]
        codes.append(_run_self(name, extra, arguments))
    minutes = (time.monotonic() - started) / 60
    print(f"{codes.count(0)} of {len(codes)} parts without a mistake, {minutes:.1f} minutes")
    return max(codes)


def _repeats(arguments: argparse.Namespace) -> list[str]:
    return [] if arguments.repeats is None else ["--repeats", str(arguments.repeats)]


def _kill_drivers(part: str, arguments: argparse.Namespace) -> int:
    """Kill drivers of clusters, in processes with or without Spark."""
    _begin(part, arguments)
    command = [*_repeats(arguments), "--only", arguments.only]
    command += ["--json", str(arguments.json)] if arguments.json else []
    return subprocess.call([sys.executable, "-m", _DRIVER_KILLS[part], *command])


def _run_bugs(arguments: argparse.Namespace) -> int:
    _begin("bugs", arguments)
    codes: list[int] = []
    chosen = _bugs_called(arguments.only)
    for number, bug in enumerate(chosen, 1):
        print(f"[{number}/{len(chosen)}] ", end="", flush=True)
        codes.append(_run_self(bug, ["--bug", bug], arguments))
    print(f"{codes.count(0)} of {len(codes)} planted bugs found", flush=True)
    return max(codes)


def _run_self(name: str, extra: list[str], arguments: argparse.Namespace) -> int:
    """Run this program in its own process: one Spark application, its settings, one planted bug, and one folder."""
    kept = ["--json", str(arguments.json)] if arguments.json else []
    kept += ["--log", str(arguments.log)] if arguments.log else []
    if arguments.directory:
        kept += ["--directory", str(arguments.directory / name)]
    command = [*extra, "--seed", str(arguments.seed), *kept]
    return subprocess.call([sys.executable, "-m", "testkit.chaos", *command])


def _run_group(name: str, arguments: argparse.Namespace) -> int:
    group = GROUPS[name]
    _begin(name, arguments)
    outcomes: list[Outcome] = []
    with (
        tempfile.TemporaryDirectory(prefix="headrace-chaos-") as scratch,
        ChaosRunner(
            arguments.directory or Path(scratch) / "runs",
            group.settings,
            group.job,
            seed=arguments.seed,
        ) as runner,
    ):
        repeats = arguments.repeats or _REPEATS
        count = group.count(repeats, arguments.only)
        for outcome in group.runs(runner, repeats, arguments.only):
            outcomes.append(outcome)
            print(f"[{len(outcomes)}/{count}] {line_of(outcome)}", flush=True)
            _keep(arguments, {"group": name, **dataclasses.asdict(outcome)})
    return _report(outcomes)


def _search(arguments: argparse.Namespace) -> int:
    """Run until a run is not exact, which counts as finding the bug."""
    # Workers plant the bug when they load the job, which this process has loaded already.
    os.environ[VARIABLE] = arguments.bug
    plant_from_environment()
    search = SEARCHES[arguments.bug]
    with (
        tempfile.TemporaryDirectory(prefix="headrace-chaos-") as scratch,
        ChaosRunner(
            arguments.directory or Path(scratch) / "runs",
            search.group.settings,
            search.group.job,
            timeout_s=_BUG_TIMEOUT_S,
            seed=arguments.seed,
        ) as runner,
    ):
        for outcome in search.runs(runner):
            if not outcome.is_exact:
                text = min(outcome.mistakes, key=lambda one: not one.startswith("oracle"))[:300]
                print(f"{arguments.bug}: found in '{outcome.scenario}' ({text})", flush=True)
                found = {"bug": arguments.bug, "scenario": outcome.scenario, "found_by": text}
                _keep(arguments, {**found, "duration_s": outcome.duration_s})
                return 0
    print(f"{arguments.bug}: NOT FOUND", flush=True)
    _keep(arguments, {"bug": arguments.bug, "scenario": "", "found_by": ""})
    return 1


def _report(outcomes: list[Outcome]) -> int:
    times = [time for one in outcomes for time in one.recoveries_s]
    if times:
        print(f"recovery: median {statistics.median(times):.1f} s of {len(times)}")
    failed = sum(not outcome.is_exact for outcome in outcomes)
    print(f"{len(outcomes) - failed} of {len(outcomes)} runs exact", flush=True)
    return 1 if failed or not outcomes else 0


def _begin(name: str, arguments: argparse.Namespace) -> None:
    """Mark the start of this group in the file, so that its earlier lines do not count; not for a part of a group."""
    if arguments.only:
        return
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M")
    load = os.getloadavg()[0]
    head = {"begun": name, "at": now, "seed": arguments.seed, "processors": os.cpu_count()}
    _keep(arguments, {**head, "load_average": round(load, 1)})


def _keep(arguments: argparse.Namespace, line: dict[str, object]) -> None:
    if arguments.json:
        with arguments.json.open("a") as file:
            file.write(json.dumps(line) + "\n")


def line_of(outcome: Outcome) -> str:
    """Return one run as a line for the terminal."""
    times = outcome.recoveries_s
    recovery = f", recovered in {statistics.median(times):.1f} s" if times else ""
    verdict = "exact" if outcome.is_exact else "; ".join(outcome.mistakes)[:600]
    note = f" [{outcome.note}]" if outcome.note else ""
    return (
        f"{outcome.scenario} #{outcome.repeat}: {verdict} ({outcome.duration_s:.1f} s, "
        f"disturbed {outcome.disturbance_count} times, seed {outcome.seed}{recovery}){note}"
    )


if __name__ == "__main__":
    sys.exit(main())
