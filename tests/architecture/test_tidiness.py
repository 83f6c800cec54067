"""The shape of the house: file sizes, package files, the export list, forbidden words."""

import ast
from pathlib import Path

import pytest

import headrace
from tests.architecture.floor_plan import (
    FACADES,
    PACKAGE,
    PARTIAL_FACADES,
    folder_of,
    module_of,
    source_files,
)
from tests.architecture.tidiness import (
    FILE_LINES_MAX,
    FORBIDDEN,
    SAME_NAMES_ALLOWED,
    banners,
    forbidden_lines,
    is_banner,
    long_files,
    names_declared_twice,
    tracked_files,
)

# What users may import from `headrace` itself. A name that is added here is a promise.
EXPORTS = [
    "__version__",
    "StreamExecutionEnvironment",
    "DataStream",
    "OutputTag",
    "FailurePolicy",
    "WatermarkStrategy",
    "HeadraceError",
    "RestClusterClient",
    "ClusterClientFactory",
    "SavepointFormatType",
    "Types",
    "Row",
    "Time",
    "Duration",
    "col",
    "lit",
    "when",
    "coalesce",
    "agg",
]


def is_reexport(statement: ast.stmt) -> bool:
    """A docstring, an import, or the list of names that are passed on."""
    match statement:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case _:
            return False


def statements(file: Path) -> list[ast.stmt]:
    return ast.parse(file.read_text(encoding="utf-8")).body


def test_headrace_exports_exactly_the_pinned_names() -> None:
    assert list(headrace.__all__) == EXPORTS


def test_every_exported_name_exists() -> None:
    assert [name for name in headrace.__all__ if not hasattr(headrace, name)] == []


def test_package_files_are_a_docstring_only() -> None:
    exempt = FACADES | PARTIAL_FACADES | {""}
    offenders = [
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("__init__.py")
        if module_of(file).removeprefix("headrace").lstrip(".") not in exempt
        and folder_of(module_of(file)) not in FACADES
        and not (len(statements(file)) == 1 and ast.get_docstring(ast.parse(file.read_text())))
    ]
    assert offenders == []


def test_facades_hold_no_code_of_their_own() -> None:
    facades = [file for file in source_files() if folder_of(module_of(file)) in FACADES]
    facades += [PACKAGE.joinpath(*name.split("."), "__init__.py") for name in PARTIAL_FACADES]
    offenders = [
        f"{file.relative_to(PACKAGE)}:{statement.lineno}"
        for file in facades
        for statement in statements(file)
        if not is_reexport(statement)
    ]
    assert offenders == []


def test_every_module_says_its_duty_first() -> None:
    silent = [
        str(file.relative_to(PACKAGE))
        for file in source_files()
        if not ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_no_file_is_longer_than_the_limit() -> None:
    assert long_files(FILE_LINES_MAX) == []


def test_two_things_never_share_a_public_name() -> None:
    found = names_declared_twice()
    assert {name: found[name] for name in found.keys() - SAME_NAMES_ALLOWED} == {}


def test_no_comment_is_a_banner() -> None:
    assert banners() == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("    # -- calling " + "-" * 20, True),
        ("# --- opening", True),
        ("# ======", True),
        ("# Calling " + "-" * 20, True),
        ("#!/usr/bin/env python3", False),
        ("# -1 stands for none", False),
        ("# Written once -- and read often.", False),
        ("count = 1  # ---- not a line of its own", False),
    ],
)
def test_the_check_tells_banners_from_comments(line: str, expected: bool) -> None:
    assert is_banner(line) is expected


def test_no_tracked_file_names_a_machine_or_a_registry() -> None:
    assert [line for file in tracked_files() for line in forbidden_lines(file)] == []


@pytest.mark.parametrize(
    ("line", "forbidden"),
    [
        ("cd " + "/work" + "/main", True),
        ("index: https://" + "pypi" + ".org/simple", True),
        ("log = '" + "/tmp" + "/log.txt'", True),
        ("f'{spark_home}/work/app-1'", False),
        ("a framework/tool, teamwork/play", False),
        ("docs: https://spark.apache.org/docs", False),
    ],
)
def test_the_check_tells_machine_words_from_others(line: str, forbidden: bool) -> None:
    assert bool(FORBIDDEN.search(line)) is forbidden


def test_asyncio_tasks_are_born_by_spawn_or_in_a_group() -> None:
    # Ruff's ban of asyncio.create_task does not see the method of a loop.
    calls = [
        f"{file.relative_to(PACKAGE)}: {ast.unparse(node.func.value)}"
        for file in source_files()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "create_task"
    ]
    assert sorted(calls) == ["core/threads.py: loop", "testing/fault_proxy/proxy.py: group"]
