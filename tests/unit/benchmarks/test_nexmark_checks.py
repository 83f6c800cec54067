"""The page's sentences on the checks against DuckDB."""

import json
from pathlib import Path
from typing import Any

from benchmarks.nexmark.checks import checks_text, newest_checks
from benchmarks.nexmark.queries import QUERIES


def line(query: str, events: int, missing: int = 0, host: str = "spark") -> str:
    figures = {"query": query, "events": events, "host": host}
    counts = {"expected": 1234, "found": 1234 - missing, "missing": missing, "unexpected": 0}
    return json.dumps({"date": "2026-01-02", "figures": figures | counts})


def kept(directory: Path, *lines: str) -> list[Any]:
    (directory / "nexmark_check.jsonl").write_text("".join(f"{one}\n" for one in lines))
    return list(newest_checks(directory))


def test_the_newest_check_on_spark_counts_for_each_query_and_number_of_events(
    tmp_path: Path,
) -> None:
    found = kept(
        tmp_path,
        line("q1", 1_000_000, missing=3),
        line("q1", 1_000_000),
        line("q1", 10_000_000),
        line("q1", 10_000_000, missing=2, host="one process"),
        line("q1", 50, missing=1),
    )
    assert [(one["events"], one["missing"]) for one in found] == [(1_000_000, 0), (10_000_000, 0)]


def test_every_query_has_a_row_and_what_was_not_checked_says_so(tmp_path: Path) -> None:
    text = checks_text(kept(tmp_path, line("q1", 1_000_000), line("q3", 10_000_000)))
    assert "| q1 | 1,234 | 2026-01-02 | – | – |" in text
    assert "| q3 | – | – | 1,234 | 2026-01-02 |" in text
    assert all(f"| {query} |" in text for query in QUERIES)
    assert "Not the same" not in text


def test_a_result_that_is_not_duckdb_s_is_named(tmp_path: Path) -> None:
    text = checks_text(kept(tmp_path, line("q1", 1_000_000, missing=2)))
    assert "q1 of 1,000,000 events: 2 rows are missing, 0 are not DuckDB's." in text


def test_without_checks_there_is_no_section(tmp_path: Path) -> None:
    assert checks_text(newest_checks(tmp_path)) == ""
