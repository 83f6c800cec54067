"""The tables of names are the only places that spell them."""

import ast

from headrace.metrics.names import METRIC_NAMES
from tests.architecture.floor_plan import PACKAGE, source_files

TABLES = [PACKAGE / "metrics" / name for name in ("names.py", "cluster_names.py")]


def test_no_other_code_of_the_runtime_spells_the_name_of_a_metric() -> None:
    # Plain words are not only names of metrics: "latency" is a group of them as well.
    known = {row.name for row in METRIC_NAMES if row.name.lower() != row.name}
    found = [
        f"{file.relative_to(PACKAGE)}:{node.lineno} {node.value}"
        for file in source_files()
        if file not in TABLES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in known
    ]
    assert not found
