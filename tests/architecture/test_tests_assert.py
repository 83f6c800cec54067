"""No test is for show: each asserts something where a reader sees it; a repetition says which test shows the same."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.floor_plan import ROOT

Function = ast.FunctionDef | ast.AsyncFunctionDef

_CHECKING_CALLS = ("assert_", "check_")


def called_name(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def is_expectation(call: ast.Call) -> bool:
    """Return whether it is `expect(…).to_…(…)` of a page in a browser: `expect(…)` alone checks nothing."""
    match call.func:
        case ast.Attribute(attr=name, value=ast.Call(func=ast.Name(id="expect"))):
            return name.startswith(("to_", "not_to_"))
        case _:
            return False


def asserts(function: Function) -> bool:
    """Whether it holds an `assert`, a `pytest.raises`, or a call of something that is named after what it does."""
    for node in ast.walk(function):
        match node:
            case ast.Assert():
                return True
            case ast.Call():
                name = called_name(node)
                if name == "raises" or name.lstrip("_").startswith(_CHECKING_CALLS):
                    return True
                if is_expectation(node):
                    return True
            case _:
                pass
    return False


def unused_functions(test: Function) -> Iterator[str]:
    """Functions that a test defines and never mentions again, such as a scenario that nobody runs."""
    used = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    for node in test.body:
        if isinstance(node, Function) and node.name not in used:
            yield node.name


def functions_named_test(tree: ast.Module) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, Function) and node.name.startswith("test_"):
            yield node


def bare_repetitions(tree: ast.Module) -> Iterator[int]:
    """Return the lines of marks of repetitions that do not say which other test shows the same."""
    explained = {
        id(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and any(isinstance(arg, ast.Constant) for arg in node.args)
    }
    for node in ast.walk(tree):
        is_mark = isinstance(node, ast.Attribute) and node.attr == "repetition"
        if is_mark and id(node) not in explained:
            yield node.lineno


def complaints(file: Path, text: str) -> Iterator[str]:
    tree = ast.parse(text)
    for line in bare_repetitions(tree):
        yield f"{file}:{line} says of no test that it shows the same"
    for test in functions_named_test(tree):
        place = f"{file}:{test.lineno} {test.name}"
        if not asserts(test):
            yield f"{place} asserts nothing"
        for name in unused_functions(test):
            yield f"{place} never runs {name}"


def test_every_test_asserts_and_runs_what_it_defines() -> None:
    found = [
        complaint
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
        for complaint in complaints(file.relative_to(ROOT), file.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("run()", ["asserts nothing"]),
        ("assert run()", []),
        ("expect(page).to_be_visible()", []),
        ("expect(page)", ["asserts nothing"]),
        ("with pytest.raises(OSError): run()", []),
        ("check_model(run())", []),
        ("def scenario(): assert run()", ["never runs scenario"]),
        ("def scenario(): assert run()\n    go(scenario)", []),
    ],
)
def test_the_scan_tells_tests_for_show_from_others(body: str, expected: list[str]) -> None:
    found = list(complaints(Path("x.py"), f"def test_x():\n    {body}\n"))
    assert found == [f"x.py:1 test_x {complaint}" for complaint in expected]


@pytest.mark.parametrize(
    ("mark", "line"), [("repetition", [1]), ("repetition()", [1]), ('repetition("as above")', [])]
)
def test_a_repetition_says_what_shows_the_same(mark: str, line: list[int]) -> None:
    assert list(bare_repetitions(ast.parse(f"run = pytest.mark.{mark}\n"))) == line
