"""Statements with `?` for each column of a record, as JDBC writes them, in the form that psycopg takes."""

import re
from dataclasses import dataclass
from typing import Final

_PIECES: Final = re.compile(
    r"""'(?:[^']|'')*'      # a string: a question mark in it is one
      | "(?:[^"]|"")*"      # a quoted name
      | --[^\n]*            # a comment to the end of the line
      | \?\?                # JDBC's way to write an operator with a question mark
      | \? | %""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Statement:
    """A statement for psycopg, and how many values it takes."""

    text: str
    parameter_count: int


def parse_statement(sql: str) -> Statement:
    """Turn each `?` that stands for a value into psycopg's `%s`.

    Example:
        >>> parse_statement("INSERT INTO t VALUES (?, '?', ?)")
        Statement(text="INSERT INTO t VALUES (%s, '?', %s)", parameter_count=2)
    """
    count = 0

    def translate(match: re.Match[str]) -> str:
        nonlocal count
        piece = match.group()
        if piece == "?":
            count += 1
            return "%s"
        if piece == "??":
            return "?"
        return piece.replace("%", "%%")

    return Statement(_PIECES.sub(translate, sql), count)
