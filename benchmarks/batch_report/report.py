"""Makes docs/batch_report.md, with a picture, of the newest results of `batch_report` and `batch_modes`.

python -m benchmarks.batch_report.report
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.batch_report.queries import QUERIES
from benchmarks.page import DOCS, picture, run_text, table
from benchmarks.record import RESULTS, read_results

PYFLINK_AIM: Final = 10
PANDAS_AIM: Final = 1
LEAST_TURNS: Final = 3
LEAST_RECORDS: Final = 1_000_000
MIB: Final = 1 << 20
NAMES: Final = {
    "batch": "Headrace BATCH",
    "streaming": "Headrace STREAMING",
    "spark": "Spark SQL",
    "pyflink_thread": "PyFlink BATCH, threads",
    "pyflink_process": "PyFlink BATCH, processes",
    "pyflink_sql": "PyFlink SQL BATCH",
}
PICTURE: Final = "batch_queries"
Line = Mapping[str, Any]

PAGE: Final = """\
# Bounded programs in BATCH mode

Made by `python -m benchmarks.batch_report.report` of the newest figures that `python -m benchmarks.batch_report`,
`batch_modes` and `batch_keys` kept.

## Six queries

{query_picture}\
Records per second, medians of all turns, each turn a process of its own. Two subtasks everywhere; Spark has two shuffle
partitions and adaptive execution. All ways read the same events and give the same rows over a smaller set, or there are
no figures. Multiples of a peer are told of at least {least_turns} turns.

{query_table}

{queries}

{query_aim}
{query_runs}
## A keyed Python function

Numbers, counted one by one by key. `map_pandas` and Spark's `applyInPandas` call the same function with a DataFrame of
each key; in the other ways numbers are keyed by a Python function, and another is called for each number.
Medians of all turns, the start of each job included. "Times" are those of `applyInPandas`: `map_pandas` at equal work,
or BATCH where that was not measured.

{function_table}

{function_aim}
## More keys than memory holds

{keys}
## What is unfair, or not compared

- The time of Headrace and of Spark is that of the whole job in a warm application, with planning and deployment; that
  of PyFlink begins with its first running task, and its input lies in memory as Arrow. Both favour PyFlink.
- With Python functions PyFlink is given 1,000,000 events, as it would take long otherwise: its fixed costs weigh more
  in its rate.
- Without a Python function Flink's and Spark's SQL run in the JVM as compiled code, and Headrace in Arrow.
  In `pricing` amounts are computed by Python functions of columns in Headrace and Spark, and by SQL in Flink.
- Flink's joins are planned before the job runs: its adaptive ones need a job that the cluster plans.
- Headrace's records become tuples before a function sees them, and Spark's function of `currency` is given a column
  of pandas.
- No way has checkpoints. A subtask of Headrace keeps at most 256 MB of sorted rows in memory in BATCH mode and spills
  what is more, as Spark does with more than fits its memory.

## How to run it again

    python -m benchmarks.batch_report --root DIRECTORY --pyflink-python PATH   # an environment with apache-flink 2.3.0
    python -m benchmarks.batch_modes --records 10000000 --keys 500 --parallelism 1
    python -m benchmarks.batch_keys
    python -m benchmarks.batch_report.report
"""


KEYS: Final = """\
{records} records of {keys} keys, whose records are far apart, are counted in value
state by {parallelism} subtasks in {seconds} s. A dict of all keys with their counts takes {held} MiB. The largest
Python worker took {worker} MiB, Spark's JVM {jvm} MiB, and {swapped} MiB lay in swap.

{run}"""


def newest(results: Path) -> tuple[list[Line], list[Line]]:
    """Return the newest run of each query, in their order, and that of each shape of the keyed function."""
    runs = {line["figures"]["query"]: line for line in read_results("batch_report", results)}
    shapes = {
        tuple(line["figures"][name] for name in ("records", "keys", "parallelism")): line
        for line in read_results("batch_modes", results)
        if line["figures"]["records"] >= LEAST_RECORDS
    }
    return [runs[query] for query in QUERIES if query in runs], [
        shapes[shape] for shape in sorted(shapes)
    ]


def rates_of(line: Line) -> dict[str, float]:
    """Return the median of each way that was run."""
    taken = line["figures"]["records_per_second"]
    return {way: median(turns) for way, turns in taken.items() if turns}


def multiple(line: Line, peers: Sequence[str]) -> float | None:
    """Return how many times the rate of the best of some peers BATCH mode takes; None with too few turns or no peer."""
    rates = rates_of(line)
    best = max((rates[peer] for peer in peers if peer in rates), default=0.0)
    if not best or "batch" not in rates or line["figures"]["turns"] < LEAST_TURNS:
        return None
    return rates["batch"] / best


def write_page(
    runs: Sequence[Line], shapes: Sequence[Line], keys: Sequence[Line], drawn: Sequence[str]
) -> str:
    """Return the page."""
    return PAGE.format(
        least_turns=LEAST_TURNS,
        query_picture=f"{picture(PICTURE, drawn)}\n\n" if PICTURE in drawn else "",
        query_table=_query_table(runs),
        queries="\n".join(f"- `{name}`: {query.does}." for name, query in QUERIES.items()),
        query_aim=_query_aim(runs),
        query_runs=_runs_text(runs),
        function_table=_function_table(shapes),
        function_aim=_function_aim(shapes),
        keys=_keys_text(keys),
    )


def _query_table(runs: Sequence[Line]) -> str:
    if not runs:
        return "Nothing was measured yet."
    rows: list[list[object]] = []
    for line in runs:
        rates = rates_of(line)
        multiples = (multiple(line, ["spark"]), multiple(line, _pyflink_ways()))
        rows.append(
            [
                f"`{line['figures']['query']}`",
                max(line["figures"]["events"].values()),
                *(rates.get(way, "") for way in NAMES),
                *("" if each is None else each for each in multiples),
            ]
        )
    return table(["", "events", *NAMES.values(), "times Spark", "times PyFlink"], rows)


def _pyflink_ways() -> list[str]:
    return [way for way in NAMES if way.startswith("pyflink")]


def _query_aim(runs: Sequence[Line]) -> str:
    names = [name for name, query in QUERIES.items() if query.is_per_record]
    measured = {line["figures"]["query"]: line for line in runs}
    multiples = [multiple(measured[name], _pyflink_ways()) for name in names if name in measured]
    missing = ", ".join(f"`{name}`" for name in names if name not in measured)
    verdict = _verdict("PyFlink on functions of one record", PYFLINK_AIM, multiples)
    return f"{verdict}Not measured yet: {missing}.\n" if missing else verdict


def _function_table(shapes: Sequence[Line]) -> str:
    if not shapes:
        return "Nothing was measured yet."
    rows = [
        [
            *(figures[name] for name in ("records", "keys", "parallelism", "turns")),
            *(
                float(figures[f"{way}_records_per_second"])
                if f"{way}_records_per_second" in figures
                else ""
                for way in ("batch", "streaming", "batch_pandas", "apply_in_pandas")
            ),
            _pandas_multiple(figures),
            line["date"],
            line.get("load_average_before", "not noted"),
        ]
        for line in shapes
        for figures in [line["figures"]]
    ]
    heads = ["records", "keys", "parallelism", "turns", "BATCH", "STREAMING", "`map_pandas`"]
    return table([*heads, "`applyInPandas`", "times", "date", "load before"], rows)


def _pandas_multiple(figures: Mapping[str, Any]) -> float:
    own = figures.get("batch_pandas_records_per_second", figures["batch_records_per_second"])
    return own / figures["apply_in_pandas_records_per_second"]


def _function_aim(shapes: Sequence[Line]) -> str:
    multiples = [
        _pandas_multiple(line["figures"]) if line["figures"]["turns"] >= LEAST_TURNS else None
        for line in shapes
    ]
    return _verdict("`applyInPandas` on keyed functions", PANDAS_AIM, multiples)


def _keys_text(runs: Sequence[Line]) -> str:
    if not runs:
        return "Nothing was measured yet.\n"
    figures = runs[-1]["figures"]
    return KEYS.format(
        **{name: f"{figures[name]:,}" for name in ("records", "keys", "parallelism", "seconds")},
        **{
            name: f"{figures[f'{name}_bytes_max'] / MIB:,.0f}"
            for name in ("worker", "jvm", "swapped")
        },
        held=f"{figures['state_bytes_in_a_dict'] / MIB:,.0f}",
        run=run_text(runs[-1]),
    )


def _verdict(peer: str, aim: float, multiples: Sequence[float | None]) -> str:
    known = [each for each in multiples if each is not None]
    if not known or len(known) < len(multiples):
        return f"The aim is {aim} times {peer}: not known yet, as multiples are missing.\n"
    verdict = "reached" if min(known) >= aim else "missed"
    return f"The aim is {aim} times {peer}: {verdict}, with {min(known):.2f} at least.\n"


def _runs_text(runs: Sequence[Line]) -> str:
    """Say when, on what and with which versions; once where all runs are alike in that."""
    texts = {
        run_text(line) + ", ".join(f"{name} {text}" for name, text in line["versions"].items()): 0
        for line in runs
    }
    return "\n\n".join(f"{text}.\n" for text in texts)


def main() -> None:
    """Write the page and its picture."""
    argparse.ArgumentParser(
        prog="python -m benchmarks.batch_report.report",
        description=str(__doc__).partition("\n")[0],
    ).parse_args()
    from benchmarks.batch_report.pictures import draw

    runs, shapes = newest(RESULTS)
    drawn = draw(runs, DOCS / "pictures")
    keys = read_results("batch_keys")
    (DOCS / "batch_report.md").write_text(write_page(runs, shapes, keys, drawn))


if __name__ == "__main__":
    main()
