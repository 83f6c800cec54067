"""What the checks against DuckDB have found, for the page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.nexmark.peers.turns import is_same
from benchmarks.nexmark.queries import QUERIES
from benchmarks.page import table
from benchmarks.record import read_results

KEPT: Final = "nexmark_check"
CHECKS: Final = """\
## The same rows as DuckDB

`python -m benchmarks.nexmark.check` runs a query on Spark into files, and has DuckDB compare them with its own answer
of the same events, row for row, as often as each row is there: rows of the answer, and the day of the newest check.

{table}
{different}"""
EVENTS: Final = (1_000_000, 10_000_000)
"""Of so many events checks are told; others are somebody's trial."""
Figures = Mapping[str, Any]


def newest_checks(results: Path) -> list[Figures]:
    """Return the newest check on Spark of each query and number of events."""
    newest: dict[tuple[str, int], Figures] = {}
    for line in read_results(KEPT, results):
        figures = line["figures"]
        if figures["host"] == "spark" and figures["events"] in EVENTS:
            newest[figures["query"], figures["events"]] = {**figures, "date": line["date"]}
    return list(newest.values())


def checks_text(checks: Sequence[Figures]) -> str:
    """Return the section, with a row for each query and two columns for each number of events; "" without any."""
    if not checks:
        return ""
    found = {(check["query"], check["events"]): check for check in checks}
    counts = sorted({check["events"] for check in checks})
    heads = [head for events in counts for head in (f"rows of {events:,} events", "checked")]
    rows = [
        [query, *(cell for events in counts for cell in _cells(found.get((query, events))))]
        for query in QUERIES
    ]
    different = [
        f"{check['query']} of {check['events']:,} events: {check['missing']:,} rows are missing, "
        f"{check['unexpected']:,} are not DuckDB's."
        for check in checks
        if not is_same(dict(check))
    ]
    told = "\n".join(["", "**Not the same:**", *different, ""]) if different else ""
    return CHECKS.format(table=table(["", *heads], rows), different=told)


def _cells(check: Figures | None) -> tuple[object, str]:
    return ("–", "–") if check is None else (check["expected"], check["date"])
