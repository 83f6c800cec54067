"""Makes docs/python_report.md, with pictures, of the newest results of `keyed_function` and `start_up`.

python -m benchmarks.python_report
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.page import DOCS, picture, run_text, table
from benchmarks.record import RESULTS, read_results

RATIO_AIM: Final = 5
LEAST: Final = {"records": 1_000_000, "turns": 3, "checkpoints": 10}
ENGINES: Final = {"headrace": "Headrace", "pyflink": "PyFlink"}
STEPS: Final = {
    "began": "the program begins",
    "submitted": "its job is given",
    "mapped": "a function sees the first record",
    "seen": "the program sees its result",
    "ended": "the process has ended",
}
WHO: Final = {
    "headrace": "Headrace",
    "warmed_up": "Headrace, after `headrace warm-up`",
    "spark": "Spark Structured Streaming",
}
Line = Mapping[str, Any]

PAGE: Final = """\
# What a program of plain Python functions takes

Made by `python -m benchmarks.python_report` of the newest figures that `python -m benchmarks.keyed_function` and
`python -m benchmarks.start_up` kept; how they are taken stands at the head of those files.

## A keyed function with state, record by record

{function_picture}\
The same program but for its imports (`benchmarks/programs/keyed_count.py`) on Headrace and on PyFlink's DataStream API:
numbers, keyed by a lambda, counted in value state one by one, parallelism 1. Records per second of the job's own net
run time; behind them records, turns, and checkpoints (`cp`) that each turn completed at least. Both keep exactly-once
checkpoints, one each second, drop nothing, and write one line for each key; no columns are used here. The functions run
in processes of their own on both sides, which each turn proves: on one machine PyFlink takes threads of the client,
unless it is told otherwise. There is no multiple where one of the two has fewer than {least_turns} turns,
{least_records:,} records or {least_checkpoints} checkpoints.

{function_table}

{function_aim}
## From a command to the first record

{start_picture}

Whole processes in turns: two text files, each line mapped by a Python function, results printed by the program. Seconds
since the process was started, medians of {start_turns} turns. Most of it is Spark: its JVM, and the Python workers
that it starts; `headrace warm-up` keeps an archive of the classes which the JVM loads.

{start_table}

{start_run}"""


def newest(results: Path) -> tuple[list[Line], Line | None]:
    """Return the newest comparison with PyFlink for each number of keys, ascending, and the newest start."""
    functions = {
        line["figures"]["keys"]: line
        for line in read_results("keyed_function", results)
        if line["figures"].get("pyflink_mode") == "process"
    }
    starts = read_results("start_up", results)
    return [functions[keys] for keys in sorted(functions)], starts[-1] if starts else None


def write_page(functions: Sequence[Line], start: Line | None, drawn: Sequence[str]) -> str:
    """Return the page."""
    return PAGE.format(
        **{f"least_{what}": least for what, least in LEAST.items()},
        function_picture=f"{picture('python_function', drawn)}\n\n" if functions else "",
        function_table=_function_table(functions),
        function_aim=_function_aim(functions),
        start_turns=0 if start is None else start["figures"]["repeats"],
        start_picture=picture("python_start", drawn),
        start_table=_start_table(start),
        start_run="" if start is None else run_text(start),
    )


def doubts(figures: Mapping[str, Any]) -> list[str]:
    """Return in a few words why two rates are not compared; none where they may be."""
    found: list[str] = []
    for name, title in ENGINES.items():
        for what, least in LEAST.items():
            if figures[f"{name}_{what}"] < least:
                found.append(f"{title}: {what}")
    return found


def multiple(figures: Mapping[str, Any]) -> float | None:
    """Return how many times PyFlink's rate Headrace takes, or None where that is in doubt."""
    return None if doubts(figures) else figures["ratio"]


def _function_table(functions: Sequence[Line]) -> str:
    if not functions:
        return "No figures are kept that were measured like this."
    rows = [
        [
            figures["keys"],
            *(_rate(figures, name) for name in ENGINES),
            figures["ratio"] if not doubts(figures) else f"none ({'; '.join(doubts(figures))})",
            line["date"],
            line.get("load_average_before", "not noted"),
        ]
        for line in functions
        for figures in [line["figures"]]
    ]
    heads = ["keys", *(f"{title}, records/s" for title in ENGINES.values()), "times"]
    return table([*heads, "date", "load before"], rows)


def _rate(figures: Mapping[str, Any], name: str) -> str:
    rate = figures[f"{name}_records_per_second"]
    records, turns, checkpoints = (figures[f"{name}_{what}"] for what in LEAST)
    return f"{rate:,.0f} ({records:,} records, {turns} turns, {checkpoints} cp)"


def _function_aim(functions: Sequence[Line]) -> str:
    if not functions:
        return ""
    machines = sorted({line["machine"] for line in functions})
    measured = f"Measured on {' and '.join(machines)}.\n"
    multiples = [multiple(line["figures"]) for line in functions]
    known = [each for each in multiples if each is not None]
    if len(known) < len(multiples):
        return f"The aim is {RATIO_AIM} times PyFlink: not known yet, as multiples are missing. {measured}"
    verdict = "reached" if min(known) >= RATIO_AIM else "missed"
    return f"The aim is {RATIO_AIM} times PyFlink: {verdict}, with {min(known):.1f} at least. {measured}"


def _start_table(start: Line | None) -> str:
    if start is None:
        return "Nothing was measured yet."
    figures = start["figures"]
    measured = [who for who in WHO if f"{who}_seen_s" in figures]
    told = figures["repeats"] >= LEAST["turns"]
    rows = [
        [
            WHO[who],
            *(figures[f"{who}_{step}_s"] for step in STEPS),
            figures.get(f"{who}_ratio", "") if told else "too few turns",
        ]
        for who in measured
    ]
    return table(["", *STEPS.values(), "times as soon as Spark"], rows)


def main() -> None:
    """Write the page and its pictures."""
    argparse.ArgumentParser(
        prog="python -m benchmarks.python_report", description=str(__doc__).partition("\n")[0]
    ).parse_args()
    from benchmarks.python_pictures import draw

    functions, start = newest(RESULTS)
    drawn = draw(functions, start, DOCS / "pictures")
    (DOCS / "python_report.md").write_text(write_page(functions, start, drawn))


if __name__ == "__main__":
    main()
