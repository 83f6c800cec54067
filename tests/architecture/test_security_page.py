"""docs/security.md names tests, files and options that are there; and the lint rules that it relies on hold."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.general_options import declare_all_options
from headrace.core.config import declared_options
from tests.architecture.floor_plan import PACKAGE, ROOT

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def functions_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def rows_of_tests() -> Iterator[str]:
    """Rows of the tables that say which test shows what."""
    for table in re.findall(
        r"^\| shown \| by \|\n\| --- \| --- \|\n((?:\|.*\n)+)", PAGE, re.MULTILINE
    ):
        yield from table.splitlines()


def test_every_test_that_the_page_names_is_there() -> None:
    named = _TEST.findall(PAGE)
    assert len(named) > 50
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not name or not (ROOT / file).is_file() or name not in functions_in(ROOT / file)
    ]
    assert missing == []


def test_each_part_says_which_tests_show_it() -> None:
    parts = PAGE.split("\n## ")[2:]
    assert len(parts) == 4
    assert [part.splitlines()[0] for part in parts if "| shown | by |" not in part] == []
    assert [row for row in rows_of_tests() if not _TEST.search(row)] == []


def test_every_file_and_option_that_the_page_names_is_there() -> None:
    files = [one for one in re.findall(r"`([\w/]+\.py)`", PAGE) if not one.startswith("tests/")]
    places = [ROOT / one if one.startswith("headrace/") else PACKAGE / one for one in files]
    assert len(places) > 8
    assert [str(place) for place in places if not place.is_file()] == []
    declare_all_options()
    known = {one.key for one in declared_options()}
    assert {one for one in re.findall(r"`(headrace\.[\w.-]+)`", PAGE)} - known == set()


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "import cloudpickle",
        "from pyspark import cloudpickle",
        "from pyspark.serializers import CPickleSerializer",
        "import marshal",
        "import shelve",
        "import dill",
        "import joblib",
    ],
)
def test_whatever_unpickles_is_refused_outside_of_one_module(line: str) -> None:
    assert refusals("headrace/network/batches/sealed_batch.py", line) == ["TID251"]
    assert refusals("headrace/core/types/pickles.py", line) == []


def refusals(file: str, line: str) -> list[str]:
    """Codes of the rule of banned imports that a line breaks in a file of this name."""
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--output-format", "json",
         "--stdin-filename", file, "-"],
        cwd=ROOT, input=f"{line}\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    return [found["code"] for found in json.loads(done.stdout)]
