"""What Headrace is to reach, as rates and as multiples of engines that were measured beside the aims.

Rates of another machine say little of this one; how many times as fast as the same engine on the same files says more.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from benchmarks.nexmark.multiples import multiple
from benchmarks.nexmark.peers.registry import DUCKDB, HEADRACE, PEERS, TOUCHED_FLINK
from benchmarks.page import shown, table

# Million rows per second.
AIMS: Final = {
    "q1": 9.0,
    "q2": 18.0,
    "q3": 3.0,
    "q5": 8.0,
    "q7": 8.0,
    "q7max": 12.0,
    "q8": 1.5,
    "q11": 3.5,
}
MEASURED_WITH_THEM: Final[Mapping[str, Mapping[str, float]]] = {
    "flink": {
        "q1": 3.9,
        "q2": 5.5,
        "q3": 0.85,
        "q5": 2.0,
        "q7": 0.84,
        "q7max": 8.5,
        "q8": 0.32,
        "q11": 1.4,
    },
    DUCKDB: {"q1": 11, "q2": 157, "q3": 23, "q5": 17, "q7": 34, "q8": 18, "q11": 4.4},
    "polars": {"q1": 24, "q2": 179, "q3": 31, "q5": 28, "q7": 46, "q8": 16, "q11": 8.9},
}
_FORMS: Final[Mapping[str, tuple[str, ...]]] = {"flink": ("flink", TOUCHED_FLINK)}
"""What was measured in more than one form; the quicker one counts."""
_RATE: Final = f"{HEADRACE}_rows_per_second"
_TEXT: Final = """\
## What it is to reach

Million rows per second: the aim, which was set beside a first measurement of other engines on another machine with two
cores, and what was measured here; then both as multiples of those engines, each on its own machine. Of Flink the
quicker of its two forms counts. Its rate grows with its input, as its JVM gets warm: multiples of DuckDB and polars are
the stricter ones. `q7max` is `q7` as the plain maximum.

{table}

{missed}
"""


def aims_text(lines: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the section of a page; empty where no query with an aim was measured."""
    if not set(AIMS) & set(lines):
        return ""
    rows = [
        [query, aim, *_rate_and_multiples(query, lines.get(query, {"figures": {}})["figures"])]
        for query, aim in AIMS.items()
    ]
    heads = ["", "aim", "here"]
    for name in MEASURED_WITH_THEM:
        heads += [f"aim / {PEERS[name].title}", "here"]
    return _TEXT.format(table=table(heads, rows), missed=_missed(lines))


def _rate_and_multiples(query: str, figures: Mapping[str, Any]) -> Iterator[str]:
    rate = figures.get(_RATE)
    yield "–" if rate is None else shown(rate / 1e6)
    for name, rates in MEASURED_WITH_THEM.items():
        yield shown(AIMS[query] / rates[query]) if query in rates else "–"
        ratios = [multiple(figures, form) for form in _FORMS.get(name, (name,))]
        yield shown(min(known)) if (known := [ratio for ratio in ratios if ratio]) else "–"


def _missed(lines: Mapping[str, Mapping[str, Any]]) -> str:
    """Say in words which aims are missed as rates, and which nobody measured."""
    rates = {query: lines[query]["figures"].get(_RATE) for query in AIMS if query in lines}
    slow = [
        f"{query} ({shown(rate / 1e6)} of {shown(AIMS[query])})"
        for query, rate in rates.items()
        if rate is not None and rate < AIMS[query] * 1e6
    ]
    absent = [query for query in AIMS if rates.get(query) is None]
    text = f"Missed as a rate: {', '.join(slow)}." if slow else "No rate that was measured misses."
    return f"{text} Not measured: {', '.join(absent)}." if absent else text
