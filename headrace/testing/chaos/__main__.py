"""The chaos suite from the command line: `python -m headrace.testing.chaos --help`."""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from headrace.testing.chaos.runner import ChaosRunner, Outcome
from headrace.testing.chaos.scenarios import KILLS, SMOKE


def main() -> int:
    """Run what was asked for; 1 where some output was not exact."""
    parser = argparse.ArgumentParser(
        prog="python -m headrace.testing.chaos",
        description="Kill TaskManagers of a running job at named moments, and judge what it committed.",
    )
    parser.add_argument("--repeats", type=int, default=5, help="runs of each moment (default: 5)")
    parser.add_argument("--smoke", action="store_true", help="a few moments, once each")
    parser.add_argument("--only", default="", help="moments whose name contains this text")
    parser.add_argument(
        "--directory", type=Path, help="where runs keep their files (default: a temporary folder)"
    )
    arguments = parser.parse_args()
    chosen = [
        scenario
        for scenario in KILLS
        if arguments.only in scenario.name and (not arguments.smoke or scenario.name in SMOKE)
    ]
    repeats = 1 if arguments.smoke else arguments.repeats
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as scratch:
        directory = arguments.directory or Path(scratch) / "runs"
        with ChaosRunner(directory) as runner:
            for scenario in chosen:
                for repeat in range(repeats):
                    outcome = runner.run(scenario, repeat)
                    print(line_of(outcome), flush=True)
                    outcomes.append(outcome)
    times = [one.recovery_s for one in outcomes if one.recovery_s is not None]
    if times:
        print(f"recovery: median {statistics.median(times):.1f} s of {len(times)}")
    failed = sum(not outcome.is_exact for outcome in outcomes)
    print(f"{len(outcomes) - failed} of {len(outcomes)} runs exact")
    return 1 if failed or not outcomes else 0


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
