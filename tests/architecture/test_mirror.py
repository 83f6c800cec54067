"""Unit tests mirror the folders that they test: `headrace/`, or `testkit/` and `benchmarks/` beside it."""

from tests.architecture.floor_plan import PACKAGE, ROOT

UNIT = ROOT / "tests" / "unit"
FILES_MAX = 25
"""As in the folders of the package: who looks for a test reads a list of names."""


def test_each_folder_of_unit_tests_is_named_as_the_folder_that_it_tests() -> None:
    folders = {file.parent.relative_to(UNIT) for file in UNIT.rglob("test_*.py")}
    assert len(folders) > 30
    strangers = {
        folder.as_posix()
        for folder in folders
        if not (PACKAGE / folder).is_dir() and not (ROOT / folder).is_dir()
    }
    assert strangers == set()


def test_no_folder_of_unit_tests_is_too_full() -> None:
    counts: dict[str, int] = {}
    for file in UNIT.rglob("*.py"):
        folder = file.parent.relative_to(UNIT).as_posix()
        counts[folder] = counts.get(folder, 0) + 1
    assert {folder: count for folder, count in counts.items() if count > FILES_MAX} == {}
