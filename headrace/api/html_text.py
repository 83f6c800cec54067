"""HTML of what notebooks show: tables and paragraphs, in which every text of a user is escaped."""

import html
from collections.abc import Iterable, Sequence
from typing import Final

CELL_CHARACTERS_MAX: Final = 200


def paragraph(text: str) -> str:
    """Return a paragraph of plain text."""
    return f"<p>{html.escape(text)}</p>"


def preformatted(text: str) -> str:
    """Return preformatted lines of plain text."""
    return f"<pre>{html.escape(text)}</pre>"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; long cells are cut."""
    lines = [_row("th", heads), *(_row("td", row) for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def short_text(value: object) -> str:
    """Return the text of a cell."""
    text = str(value)
    return text if len(text) <= CELL_CHARACTERS_MAX else f"{text[: CELL_CHARACTERS_MAX - 1]}…"


def _row(tag: str, cells: Sequence[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(short_text(one))}</{tag}>' for one in cells)}</tr>"
