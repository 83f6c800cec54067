"""The trees of errors that modules called `errors` draw in their docstrings: whole, and as the classes are."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace.core.errors import HeadraceError

PACKAGE = Path(headrace.__file__).parent
FILES = sorted(PACKAGE.rglob("errors.py"))
BRANCH = re.compile(
    r"^(?P<above>[| ]*)\+- (?:(?P<module>[\w.]+): )?(?P<names>\w+Error(?:, \w+Error)*)"
)
ROOT = re.compile(r"^(?P<name>\w+Error)\b")
INDENT = 3

Edge = tuple[str, str]


def module_of(file: Path) -> str:
    return ".".join(("headrace", *file.relative_to(PACKAGE).with_suffix("").parts))


def every_error() -> set[type[HeadraceError]]:
    """All of the package, whichever of its modules define them."""
    for file in PACKAGE.rglob("*.py"):
        if "Error)" in file.read_text():
            importlib.import_module(module_of(file))
    found: set[type[HeadraceError]] = {HeadraceError}
    pending = [HeadraceError]
    while pending:
        below = [one for one in pending.pop().__subclasses__() if one not in found]
        found.update(below)
        pending += below
    return {one for one in found if one.__module__.startswith("headrace.")}


def drawn_edges(drawing: str) -> Iterator[Edge]:
    """Parent and child of each line; one whose depth has nothing above it has the parent ``."""
    above: list[str] = []
    for line in drawing.splitlines():
        if root := ROOT.match(line):
            above = [root["name"]]
        elif branch := BRANCH.match(line):
            depth = len(branch["above"]) // INDENT + 1
            names = branch["names"].split(", ")
            yield from ((above[depth - 1] if depth <= len(above) else "", name) for name in names)
            above = [*above[:depth], names[-1]]


def drawn_modules(drawing: str) -> Iterator[tuple[str, str]]:
    """Error and module, of each line that names a module."""
    for line in drawing.splitlines():
        branch = BRANCH.match(line)
        if branch and branch["module"]:
            yield from ((name, branch["module"]) for name in branch["names"].split(", "))


@pytest.mark.parametrize("file", FILES, ids=module_of)
def test_a_drawing_names_the_module_that_defines_each_error(file: Path) -> None:
    drawing = importlib.import_module(module_of(file)).__doc__ or ""
    defining = {
        error.__name__: error.__module__.removeprefix("headrace.") for error in every_error()
    }
    drawn = list(drawn_modules(drawing))
    assert [(name, module) for name, module in drawn if defining.get(name) != module] == []


@pytest.mark.parametrize("file", FILES, ids=module_of)
def test_a_drawing_holds_what_its_module_defines_and_what_stands_right_below(file: Path) -> None:
    name = module_of(file)
    drawing = importlib.import_module(name).__doc__ or ""
    drawn = set(drawn_edges(drawing))
    roots = {found["name"] for line in drawing.splitlines() if (found := ROOT.match(line))}
    links = {
        (parent, child)
        for child in every_error()
        for parent in child.__bases__
        if issubclass(parent, HeadraceError)
    }
    true = {(parent.__name__, child.__name__) for parent, child in links}
    needed = {
        (parent.__name__, child.__name__)
        for parent, child in links
        if parent.__module__ == name or (child.__module__ == name and child.__name__ not in roots)
    }
    assert drawn - true == set(), "drawn, but not so"
    assert needed - drawn == set(), "not drawn"


def test_a_drawing_is_read_as_it_is_meant() -> None:
    drawing = "AError\n+- BError  x\n|  +- some.where: CError, DError\n+- EError\n   +- FError\n"
    assert list(drawn_edges(drawing)) == [
        ("AError", "BError"),
        ("BError", "CError"),
        ("BError", "DError"),
        ("AError", "EError"),
        ("EError", "FError"),
    ]
