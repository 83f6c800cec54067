"""Docstrings are read alone: each begins with a verb or a noun, and none only says where to look."""

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.architecture.floor_plan import source_files

_QUESTION: Final = "what|which|where|how|whether|who|when"
_RIDDLE: Final = re.compile(
    rf"(?:(?:{_QUESTION})\b|\w+(?:,? (?:and )?[A-Z]\w+)*: (?:{_QUESTION})\b|see `?[\w.]+`?(?:\(\))?\.?$)",
    re.IGNORECASE,
)


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Return line and text of each docstring, those of attributes too."""
    for node in ast.walk(tree):
        # Of a lambda or a conditional expression the body is no list of statements.
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else ():
            match each:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield each.lineno, text.strip()
                case _:
                    pass


def riddles(tree: ast.Module) -> list[int]:
    return [line for line, text in docstrings(tree) if _RIDDLE.match(text)]


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    found = [
        f"{file}:{line}"
        for file in source_files()
        for line in riddles(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("What a task knows.", [1]),
        ("Whether it runs.", [1]),
        ("Return whether it runs.", []),
        ("Watermark: how far event time is.", [1]),
        ("Watermark: the progress of event time.", []),
        ("See Writer.", [1]),
        ("See how the writer flushes.", []),
    ],
)
def test_riddles_are_found(text: str, lines: list[int]) -> None:
    assert riddles(ast.parse(f'"""{text}"""')) == lines
