"""What several test files use lies in modules of its own: a test file that others import is read for two reasons."""

import ast
from pathlib import Path

from tests.architecture.floor_plan import ROOT


def imported_test_files(file: Path) -> list[str]:
    """Test files from which a file imports, also within its functions."""
    return [
        node.module
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module is not None
        and node.module.startswith("tests.")
        and node.module.rpartition(".")[2].startswith("test_")
    ]


def test_nobody_imports_from_a_test_file() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    found = {str(file.relative_to(ROOT)): imported_test_files(file) for file in files}
    assert len(found) > 100
    assert {name: modules for name, modules in found.items() if modules} == {}
