"""Helpers of several test files are in modules of their own: no test file is imported by another."""

import ast
from pathlib import Path

from tests.architecture.floor_plan import ROOT


def is_test_file(module: str) -> bool:
    """Whether a name below `tests` is that of a test file, and not of something in a module."""
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    return path.name.startswith("test_") and path.is_file()


def imported_test_files(file: Path) -> list[str]:
    """Test files from which a file imports, also within its functions."""
    return [
        module
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests.")
        for module in [str(node.module), *(f"{node.module}.{each.name}" for each in node.names)]
        if is_test_file(module)
    ]


def test_nobody_imports_from_a_test_file() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    found = {str(file.relative_to(ROOT)): imported_test_files(file) for file in files}
    assert len(found) > 100
    assert {name: modules for name, modules in found.items() if modules} == {}
