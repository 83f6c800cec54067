"""Every row of the pages below docs/invariants/ names tests that exist, or the decision why there are none."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.floor_plan import ROOT

PAGES: Final = ROOT / "docs" / "invariants"
HEADER: Final = ["Invariant", "Tests"]

_CODE: Final = re.compile(r"`([^`]*)`")
_DECISION: Final = re.compile(r"\]\((\.\./adr/[^)#]+\.md)\)")
_BETWEEN_CELLS: Final = re.compile(r"(?<!\\)\|")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in _BETWEEN_CELLS.split(line.strip())[1:-1]]


def is_never_run(test: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is marked to be skipped, or to be allowed to fail, whatever the circumstances."""
    decorators = {ast.unparse(decorator).partition("(")[0] for decorator in test.decorator_list}
    return not decorators.isdisjoint({"pytest.mark.skip", "pytest.mark.xfail"})


@cache
def names_of_tests(file: Path) -> frozenset[str]:
    return frozenset(find_tests(file))


def find_tests(file: Path) -> Iterator[str]:
    """What pytest collects from `file` at its top level: functions, classes, and hypothesis's `TestX = X.TestCase`."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test_") and not is_never_run(node):
                    yield name
            case ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                if name.startswith("Test"):
                    yield name
            case _:
                pass


def complaint_about_test(named: str) -> str | None:
    path, _, name = named.partition("::")
    file = ROOT / path
    if not path.startswith("tests/") or not file.is_file():
        return f"{named}: there is no such file"
    return (
        None if name in names_of_tests(file) else f"{named}: the file has no such test that is run"
    )


def complaints_about_row(line: str) -> Iterator[str]:
    row = cells(line)
    if len(row) != len(HEADER) or not row[0]:
        yield "not a row of an invariant and its tests"
        return
    tests = _CODE.findall(row[1])
    decisions = _DECISION.findall(row[1])
    if not tests and not decisions:
        yield f"no test and no decision: {row[0]}"
    yield from (complaint for test in tests if (complaint := complaint_about_test(test)))
    for decision in decisions:
        if not (PAGES / decision).is_file():
            yield f"{decision}: there is no such decision"


def complaints(text: str) -> list[str]:
    """What is wrong with a page; a table is a header, a line of dashes and rows."""
    found: list[str] = []
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if not line.startswith("|") or set(line) <= set("|-: "):
            continue
        is_header = number == 1 or not lines[number - 2].startswith("|")
        if is_header and cells(line) != HEADER:
            found.append(f"{number}: the columns are {' and '.join(HEADER)}")
        elif not is_header:
            found += [f"{number}: {complaint}" for complaint in complaints_about_row(line)]
    return found


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_every_invariant_of_a_page_names_tests_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "\n| " in text, "a page of invariants holds a table of them"
    assert complaints(text) == []


_THIS: Final = "tests/architecture/test_invariants.py"
_HELD: Final = f"`{_THIS}::test_every_invariant_of_a_page_names_tests_that_exist`"


@pytest.mark.parametrize(
    ("tests_cell", "expected"),
    [
        (_HELD, []),
        (f"{_HELD}, {_HELD}", []),
        ("[ADR 1](../adr/0001-dependencies.md)", []),
        ("", ["no test and no decision"]),
        ("reviewed by hand", ["no test and no decision"]),
        (f"{_HELD}, `{_THIS}::test_nothing`", ["the file has no such test"]),
        (f"`{_THIS}`", ["the file has no such test"]),
        ("`tests/unit/test_nowhere.py::test_x`", ["no such file"]),
        ("[ADR 0](../adr/0000-none.md)", ["no such decision"]),
        (f"{_HELD} | more", ["not a row"]),
    ],
)
def test_the_scan_tells_rows_that_are_held_from_others(
    tests_cell: str, expected: list[str]
) -> None:
    found = complaints(f"| Invariant | Tests |\n| --- | --- |\n| Nothing is lost. | {tests_cell} |")
    assert len(found) == len(expected)
    assert all(part in complaint for part, complaint in zip(expected, found, strict=True))


def test_a_table_of_other_columns_is_no_table_of_invariants() -> None:
    assert complaints("| Name | Value |\n| --- | --- |") == [
        "1: the columns are Invariant and Tests"
    ]


def test_a_test_that_is_always_skipped_holds_nothing(tmp_path: Path) -> None:
    file = tmp_path / "test_x.py"
    file.write_text(
        "@pytest.mark.skip(reason='later')\ndef test_a(): pass\n"
        "@pytest.mark.skipif(old, reason='new only')\ndef test_b(): pass\n"
        "def helper(): pass\nTestC = C.TestCase\n"
    )
    assert list(find_tests(file)) == ["test_b", "TestC"]
