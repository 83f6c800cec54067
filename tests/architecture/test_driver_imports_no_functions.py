"""Functions of jobs are unpickled by tasks alone: no part of the driver knows how."""

import ast

from tests.architecture.floor_plan import PACKAGE

PARTS_OF_THE_DRIVER = ("cluster", "connectors", "gateways", "rest", "rpc", "spark")
UNPICKLING = ("unpickle_value", "unpickle_values")


def names_imported_below(folder: str) -> dict[str, list[str]]:
    return {
        str(file.relative_to(PACKAGE)): [
            alias.name
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        ]
        for file in sorted((PACKAGE / folder).rglob("*.py"))
    }


def test_no_part_of_the_driver_unpickles_what_a_job_brings() -> None:
    found = {
        file: names for part in PARTS_OF_THE_DRIVER for file, names in names_imported_below(part).items()
    }  # fmt: skip
    assert len(found) > 200
    assert [file for file, names in found.items() if set(names) & set(UNPICKLING)] == []


def test_tasks_do_and_would_be_found() -> None:
    assert any(set(names) & set(UNPICKLING) for names in names_imported_below("task").values())
