"""Markdown from plain values: tables, and docstrings as table cells."""

import inspect
import re
from collections.abc import Iterable, Sequence

_SINCE = re.compile(r"\s*Since version \d+\.")
_SOURCE = re.compile(r"\s*Source: [^.]*\.")


def cell(text: str) -> str:
    """Return `text` as one line that may stand in a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    lines = [f"| {' | '.join(headings)} |", f"|{' --- |' * len(headings)}"]
    return lines + [f"| {' | '.join(cell(value) for value in row)} |" for row in rows]


def first_paragraph(documented: object) -> str:
    """Return the first paragraph of a docstring as one line, without its notes on versions and sources."""
    text = (inspect.getdoc(documented) or "").split("\n\n", 1)[0]
    return cell(_SOURCE.sub("", _SINCE.sub("", text)))


def first_line(documented: object) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(documented) or "").split("\n", 1)[0]
