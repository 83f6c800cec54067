"""A page about runs of the chaos suite: `python -m testkit.chaos.report outcomes.jsonl page.md`.

The file may have been written in parts, group by group: the newest part of each group counts, and older ones are
removed from the file, which is kept next to benchmark results so that parts can be added without losing the rest. A run
that was not exact stays next to those that repeat it; `remark` in its line describes its cause.
"""

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

Line = dict[str, Any]
PICTURE: Final = "chaos_recovery"
_HEAD: Final = """# What the chaos suite found

`make chaos` runs one of two jobs on Spark `local[*]` with two TaskManagers while processes die, freeze and fail, and
storage does. The *digest job* chains a checksum over the numbers of each key, so that every row depends on all before
it. The *events job* (groups `events…`) has sessions that merge, with lateness and a side output of late events, an
interval join, and rules that are broadcast to a keyed function with timers. Every row that was committed is compared
with an answer computed by plain Python; rows that are lost, duplicated, corrupted or reordered in their file are told
apart, and a second reader follows the committed files all the while. A run is *exact* when none of that was found at
any time, although what was to happen did happen. A *disturbance* is a kill, a freeze, or what a failpoint did (an
error, a delay, a crash). Recovery is from a disturbance until every task ran again.

Group `leaders` needs no Spark: two drivers of one cluster run as processes, with TaskManagers as further ones; one
leads, the other waits ([jobs that outlive their driver](high_availability.md)). The leader is killed (`SIGKILL`) at a
step of a job of two tasks, which writes numbers into files exactly once and takes a checkpoint every 100 ms. The lease
is the default, 6 s. Such a run is exact when every number is in the output once, the next leader restored the
checkpoint that was the newest at the moment of the kill, nothing of the job is left behind when it has ended, and it
took at most 12 s (15 s after a minute of kills) from the kill until all tasks ran under the next leader; where the job
had ended already, until the next leader led. How busy the machine was before each is in the last table. A *leader of
another host* dies where its successor judges by the lease alone, as elected through files, a ZooKeeper or a stand-in
for Kubernetes with the terms that [keep 12 s](high_availability.md#within-12-seconds). In two runs a ZooKeeper through
which drivers elect their leader is killed and started again half a minute later, while two jobs run: one of 5,000 rows
in each second with state by key, and one beside. A leader that tolerates that must stay the leader, and its jobs write
all the while; without that option both drivers stand by, and the time is from the start of its process until all tasks
run under whichever leads. In all of them what the storage names as the newest checkpoint is read all the while: a run
in which it names two is not exact. The ten steps were run before ADR 42 and 44 changed who follows and how jobs are
stored; since then the tests do each step once on every change.

Group `takeovers` is on Spark `local[*]` or a standalone cluster, with sessions as `headrace cluster start --supervise`
starts them: the driver is killed (`SIGKILL`), and goes on as the standby beside it, or as the next driver that its
supervisor starts, with a Spark of its own. The time is from the kill until all tasks of the job run again, of which 2
s are left to the killed driver's last writes: both are processes of one host. 12 s are the bound, and 15 s until no
worker of the killed driver is left; its note says how long that took.

Group `dataframes` is on Spark `local[6]`: a query reads files, and its micro-batches are pushed into a job. Five
processes are killed (`SIGKILL`) in each run, one after the other: TaskManagers, workers of Spark's that push rows, and
the driver, whose successor goes on from its newest checkpoint. Their order and their moments, anywhere in a
micro-batch, are drawn from a seed. A run is exact when every row is in the output once, and after each kill the query
committed another micro-batch within 60 s; the time is the longest of these.

What is committed is committed by the driver, which in the other groups nothing kills. In *published, before the
commit*, *inside the commit* and *committed, not noted yet* (notes `driver:commit…`) a TaskManager dies at that moment,
while the driver goes on with its commit. The driver's death is shown elsewhere, too: on real Spark by
`tests/spark/test_driver_restarts.py`, which kills it inside a commit and at no chosen moment, before a successor
goes on from the last checkpoint; at each moment between two operations on the storage of checkpoints by a model in
one process, `test_driver_failures.py`; and that a driver which goes on behind its successor commits nothing twice by
`test_zombie_committers.py`.
"""
_BUGS_HEAD: Final = """## Does the suite work?

Each of these bugs was planted by itself (`testkit/chaos/planted_bugs.py`), and has to be found: by the
*oracle*, by the *second reader*, by the watch for jobs that neither end nor commit (*StalledError*), or because the job
failed for good and said why (*JobExecutionError*).
"""


def main() -> int:
    """Write the page, and its picture next to it."""
    from testkit.chaos.pictures import draw_recovery

    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    lines = newest_of_each_group([json.loads(line) for line in source.read_text().splitlines()])
    times = recovery_times(lines)
    if times:
        draw_recovery(times, target.parent / "pictures" / f"{PICTURE}.svg")
    target.write_text(page_of(lines))
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(target)
    return 0


def newest_of_each_group(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of each group since it was last begun as a whole.

    A repeated run counts once; a run that was not exact always counts, as no repetition replaces it.
    """
    found: dict[str, dict[object, Line]] = {}
    for line in lines:
        name = line.get("begun") or line.get("group") or "bugs"
        if "begun" in line:
            found.pop(name, None)
        group = found.setdefault(name, {})
        run = (line.get("scenario"), line.get("repeat")) if "group" in line else line.get("bug")
        group[(run, len(group)) if line.get("mistakes") else run] = line
    return [line for group in found.values() for line in group.values()]


def recovery_times(lines: Sequence[Line]) -> dict[str, list[float]]:
    """Return recovery times in seconds by kind of disturbance, in the order of the file."""
    times: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        if line.get("recoveries_s"):
            suffix = _kind_of(line["group"])
            times[line["scenario"] + (f", {suffix}" if suffix else "")] += line["recoveries_s"]
    return dict(times)


def _kind_of(group: str) -> str:
    """Return the suffix that distinguishes the moments of a group from those of the same name in "kills"."""
    return group if group.startswith("events") else group.partition("kills-")[2]


def page_of(lines: Sequence[Line]) -> str:
    """Return the page as Markdown, from the lines that count."""
    runs = [line for line in lines if "group" in line]
    bugs = [line for line in lines if "bug" in line]
    parts = [_HEAD, *_begun_text(lines), _summary(runs), "", *_not_exact(runs)]
    if recovery_times(lines):
        parts += [f"![recovery times](pictures/{PICTURE}.svg)", ""]
    parts += [_runs_table(runs), "", *_in_flight(runs)]
    if bugs:
        parts += [_BUGS_HEAD, _bugs_table(bugs), ""]
    parts += ["## Every run, with its seed", "", _seeds_table(runs)]
    return "\n".join(parts) + "\n"


def _begun_text(lines: Sequence[Line]) -> list[str]:
    begun = [line for line in lines if "begun" in line]
    if not begun:
        return []
    times = sorted(line["at"] for line in begun)
    # For older parts only the day, and the range of the load over all of them, are known.
    loads = [one for line in begun for one in line.get("load_averages", [line.get("load_average")])]
    seeds = ", ".join(str(seed) for seed in sorted({line["seed"] for line in begun}))
    return [
        f"Run from {times[0]} to {times[-1]} UTC (begin of the last part) on {begun[0]['processors']} processors, seed "
        f"{seeds}; load average at the begin of a part {min(loads):.1f} to {max(loads):.1f}.",
        "",
    ]


def _summary(runs: Sequence[Line]) -> str:
    exact = sum(not run["mistakes"] for run in runs)
    disturbances = sum(_disturbance_count(run) for run in runs)
    text = f"**{exact} of {len(runs)} runs were exact**, under {disturbances} disturbances."
    times = [time for run in runs for time in run["recoveries_s"]]
    killed = [time for run in runs if run["group"] == "kills" for time in run["recoveries_s"]]
    if times:
        text += (
            f" Recovery took {statistics.median(times):.1f} s (median), {max(times):.1f} s at most"
        )
        of_kills = f"; of killed TaskManagers {statistics.median(killed):.1f} s" if killed else ""
        text += f"{of_kills} (median; the aim is 6 s)."
    return text


def _not_exact(runs: Sequence[Line]) -> list[str]:
    """Return every run that was not exact, by name, and the outcomes of its repetitions."""
    text: list[str] = []
    for place, run in enumerate(runs):
        if not run["mistakes"]:
            continue
        again = [one for one in runs[place + 1 :] if _name_of(one) == _name_of(run)]
        repeated = "It was not repeated."
        if again:
            exact = sum(not one["mistakes"] for one in again)
            repeated = f"It was repeated: {exact} of {len(again)} repetitions exact."
            if "seed" in run:
                repeated = repeated.replace("repeated", "repeated with the same seed")
        recovery = ", ".join(f"{time:.1f} s" for time in run["recoveries_s"]) or "not seen"
        seed = f"seed {run['seed']}, " if "seed" in run else ""
        text.append(
            f"- **{_name_of(run)}** ({seed}recovery {recovery}): "
            f"{_cell('; '.join(run['mistakes']), 600)}. {repeated}{_remark_on(run)}"
        )
    return ["Not exact:", "", *text, ""] if text else []


def _remark_on(run: Line) -> str:
    """Return the remark on a run that was added by hand to its line in the file, after a space."""
    return f" {run['remark']}" if "remark" in run else ""


def _name_of(run: Line) -> str:
    return f"{run['group']}: {run['scenario']} #{run['repeat']}"


def _disturbance_count(run: Line) -> int:
    """Return the number of disturbances, which older files store under another name."""
    return run["disturbance_count" if "disturbance_count" in run else "kill_count"]


def _runs_table(runs: Sequence[Line]) -> str:
    grouped: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for run in runs:
        grouped[run["group"], run["scenario"]].append(run)
    rows = [
        "| group | what happens | runs | exact | disturbances | recovery, median s | longest s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (group, scenario), found in grouped.items():
        times = [time for run in found for time in run["recoveries_s"]]
        median = f"{statistics.median(times):.1f}" if times else ""
        longest = f"{max(times):.1f}" if times else ""
        exact = sum(not run["mistakes"] for run in found)
        disturbances = sum(_disturbance_count(run) for run in found)
        rows.append(
            f"| {group} | {scenario} | {len(found)} | {exact} | {disturbances} | {median} | {longest} |"
        )
    return "\n".join(rows)


def _in_flight(runs: Sequence[Line]) -> list[str]:
    """Return in how many runs with hurried events overtaken rows were seen; older runs did not check."""
    unaligned = [run for run in runs if run["group"].startswith("events-unaligned")]
    if not unaligned:
        return []
    looked = [run["in_flight_bytes"] for run in unaligned if "in_flight_bytes" in run]
    text = f"Of {len(unaligned)} runs of groups `events-unaligned…`"
    if looked:
        held = sum(count > 0 for count in looked)
        text += f", {held} of the {len(looked)} that looked had checkpoints with rows that were in flight"
    if len(looked) < len(unaligned):
        older = len(unaligned) - len(looked)
        text += f", {older} did not look whether checkpoints held rows that were in flight"
    return [f"{text}.", ""]


def _bugs_table(bugs: Sequence[Line]) -> str:
    rows = ["| bug | in | found by |", "| --- | --- | --- |"]
    for bug in bugs:
        found_by = _cell(bug["found_by"], 160) if bug["found_by"] else "**not found**"
        rows.append(f"| {bug['bug']} | {bug.get('scenario', '')} | {found_by} |")
    return "\n".join(rows)


def _seeds_table(runs: Sequence[Line]) -> str:
    rows = ["| what happens | seed | s | recovered after s | |", "| --- | --- | --- | --- | --- |"]
    for run in runs:
        times = run["recoveries_s"]
        recovery = f"{statistics.median(times):.1f}" if times else ""
        mistakes = "; ".join(mistake.partition("\n")[0] for mistake in run["mistakes"])
        text = _cell(run["note"], 200)
        if mistakes:
            text = f"**{_cell(mistakes, 300)}** {text}".rstrip()
        rows.append(
            f"| {_name_of(run)} | {run.get('seed', '')} | {run['duration_s']:.1f} | {recovery} | {text} |"
        )
    return "\n".join(rows)


def _cell(text: str, length: int) -> str:
    """Return the first line, as the rest may be a traceback."""
    return text.partition("\n")[0].replace("|", "\\|")[:length]


if __name__ == "__main__":
    sys.exit(main())
