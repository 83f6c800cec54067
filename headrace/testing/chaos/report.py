"""A page about a run of the chaos suite: `python -m headrace.testing.chaos.report outcomes.jsonl page.md`."""

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

_HEAD: Final = """# What the chaos suite found

`make chaos` runs the digest job on Spark `local[*]` with two TaskManagers while processes die, and compares every row
that was committed with an answer computed by plain Python; a second reader follows the committed files all the while. A
run is *exact* when no row was lost, duplicated, reordered within its key, corrupted, or seen before it was committed,
although what was to happen did happen. Recovery is from the first kill until every task ran again.
"""


def main() -> int:
    """Write the page."""
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    lines = [json.loads(line) for line in source.read_text().splitlines()]
    target.write_text(page_of(lines))
    print(target)
    return 0


def page_of(lines: list[dict[str, Any]]) -> str:
    """The page as Markdown."""
    runs = [line for line in lines if "scenario" in line]
    bugs = [line for line in lines if "bug" in line]
    times = [line["recovery_s"] for line in runs if line["recovery_s"] is not None]
    exact = sum(not line["mistakes"] for line in runs)
    parts = [
        _HEAD,
        f"{exact} of {len(runs)} runs were exact, {sum(r['kill_count'] for r in runs)} processes died.",
    ]
    if times:
        parts[-1] += (
            f" Recovery took {statistics.median(times):.1f} s (median), {max(times):.1f} s at most."
        )
    parts += ["", _runs_table(runs)]
    if bugs:
        parts += ["", "## Does the suite work?", "", _bugs_table(bugs)]
    return "\n".join(parts) + "\n"


def _runs_table(runs: list[dict[str, Any]]) -> str:
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        grouped[run["group"], run["scenario"]].append(run)
    rows = [
        "| group | what happens | runs | exact | killed | recovery, median s | longest s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (group, scenario), found in grouped.items():
        times = [run["recovery_s"] for run in found if run["recovery_s"] is not None]
        median = f"{statistics.median(times):.1f}" if times else ""
        longest = f"{max(times):.1f}" if times else ""
        exact = sum(not run["mistakes"] for run in found)
        killed = sum(run["kill_count"] for run in found)
        rows.append(
            f"| {group} | {scenario} | {len(found)} | {exact} | {killed} | {median} | {longest} |"
        )
    return "\n".join(rows)


def _bugs_table(bugs: list[dict[str, Any]]) -> str:
    rows = [
        "Each of these bugs was planted by itself, and has to be found.",
        "",
        "| bug | found by |",
        "| --- | --- |",
    ]
    for bug in bugs:
        found_by = (
            bug["found_by"].splitlines()[0].replace("|", "\\|")
            if bug["found_by"]
            else "**not found**"
        )
        rows.append(f"| {bug['bug']} | {found_by[:120]} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
