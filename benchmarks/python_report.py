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

{function_picture}

The same program but for its imports (`benchmarks/programs/keyed_count.py`) on Headrace and on PyFlink's DataStream API
in process mode: numbers, keyed by a lambda, counted in value state one by one, parallelism 1, functions in Python
worker processes on both sides. Records per second of the job's own net run time. No columns are used here.

{function_table}

{function_aim}
## From a command to the first record

{start_picture}

Whole processes in turns: two text files, each line mapped by a Python function, results printed by the program. Seconds
since the process was started, medians. Most of it is Spark: its JVM, and the Python workers that it starts;
`headrace warm-up` keeps an archive of the classes which the JVM loads.

{start_table}

{start_run}"""


def newest(results: Path) -> tuple[list[Line], Line | None]:
    """Return the newest comparison with PyFlink for each number of keys, ascending, and the newest start."""
    functions = {
        line["figures"]["keys"]: line
        for line in read_results("keyed_function", results)
        if "ratio" in line["figures"]
    }
    starts = read_results("start_up", results)
    return [functions[keys] for keys in sorted(functions)], starts[-1] if starts else None


def write_page(functions: Sequence[Line], start: Line | None, drawn: Sequence[str]) -> str:
    """Return the page."""
    return PAGE.format(
        function_picture=picture("python_function", drawn),
        function_table=_function_table(functions),
        function_aim=_function_aim(functions),
        start_picture=picture("python_start", drawn),
        start_table=_start_table(start),
        start_run="" if start is None else run_text(start),
    )


def _function_table(functions: Sequence[Line]) -> str:
    rows = [
        [
            figures["keys"],
            figures["records"],
            round(figures["headrace_records_per_second"]),
            round(figures["pyflink_records_per_second"]),
            figures["ratio"],
            figures["repeats"],
            line["date"],
            line.get("load_average_before", "not noted"),
        ]
        for line in functions
        for figures in [line["figures"]]
    ]
    heads = ["keys", "records", "Headrace, records/s", "PyFlink, records/s", "times"]
    return table([*heads, "turns", "date", "load before"], rows)


def _function_aim(functions: Sequence[Line]) -> str:
    if not functions:
        return "Nothing was measured yet.\n"
    least = min(line["figures"]["ratio"] for line in functions)
    machines = sorted({line["machine"] for line in functions})
    verdict = "reached" if least >= RATIO_AIM else "missed"
    return (
        f"The aim is {RATIO_AIM} times PyFlink: {verdict}, with {least:.1f} at least. The more keys, the more often "
        f"PyFlink writes its cache of state back to the JVM. Measured on {' and '.join(machines)}.\n"
    )


def _start_table(start: Line | None) -> str:
    if start is None:
        return "Nothing was measured yet."
    figures = start["figures"]
    measured = [who for who in WHO if f"{who}_seen_s" in figures]
    rows = [
        [WHO[who], *(figures[f"{who}_{step}_s"] for step in STEPS), figures.get(f"{who}_ratio", "")]
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
