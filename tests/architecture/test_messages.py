"""Messages, and helps, of what is installed: they name nothing that only a checkout of the project has."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.architecture.floor_plan import ROOT, source_files

_ONLY_IN_A_CHECKOUT: Final = re.compile(
    r"\b(docs|examples|benchmarks|requirements|tests|tools)/\w"
    r"|\b(README|CHANGELOG)\b|\.md\b|\.ci/|\bmake (demo|test|setup|check|docs|bench|chaos|sim)\b"
)


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Every text of a module that is no docstring, with its line."""
    tree = ast.parse(source)
    docstrings = {
        id(body[0].value)
        for node in ast.walk(tree)
        if isinstance(body := getattr(node, "body", None), list)
        and body
        and isinstance(body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node.lineno, node.value


def test_a_message_names_no_file_that_the_wheel_lacks() -> None:
    found: list[str] = []
    for file in source_files():
        for line, text in texts(file.read_text(encoding="utf-8")):
            if _ONLY_IN_A_CHECKOUT.search(text):
                found.append(f"{file.relative_to(ROOT)}:{line} {text[:90]!r}")
    assert not found, "\n".join(found)


def test_a_page_named_in_a_message_would_be_found() -> None:
    module = '"""See docs/state.md."""\nRAISED = f"no such state; see docs/{1}state.md"\nHELP = "see docs/state.md"\n'
    found = {line for line, text in texts(module) if _ONLY_IN_A_CHECKOUT.search(text)}
    assert found == {2, 3}
    assert Path(ROOT / "docs" / "state.md").is_file()
