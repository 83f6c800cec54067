"""The floor plan as a table: which folder of `headrace/` may import which.

docs/generated/floor_plan.md is made from this table. A folder is named as in an import
(`cluster.task_executor`); the longest name that fits a module is its folder.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "headrace"

GROUND: Final = frozenset({"core", "graph", "functions", "checkpoint", "metrics"})
HOSTS: Final = frozenset({"spark", "cli"})
DATA_PLANE: Final = frozenset({"task", "network", "operators", "state"})

# PyFlink's module paths: re-exports only.
FACADES: Final = frozenset({"datastream", "common", "table", "util", "java_gateway"})
# Folders whose `__init__` re-exports PyFlink's public names beside code of their own.
PARTIAL_FACADES: Final = frozenset({"metrics", "testing", "spark.session"})

_BELOW_HOSTS: Final = frozenset(
    {"api", "client", "connectors", "rest", "cluster", "cluster.task_executor", "gateways", "rpc"}
    | {"cluster.high_availability"}
)

ARROWS: Final[dict[str, frozenset[str]]] = {
    # ground: siblings import only core
    "core": frozenset(),
    "graph": frozenset({"core"}),
    "functions": frozenset({"core"}),
    "checkpoint": frozenset({"core"}),
    "metrics": frozenset({"core"}),
    # data plane
    "network": GROUND,
    "state": GROUND,
    "operators": GROUND | {"state"},
    "state_processor": GROUND | {"state"},
    "task": GROUND | {"network", "operators", "state"},
    # control plane
    "rpc": GROUND,
    "gateways": GROUND | {"rpc"},
    "cluster": GROUND | {"gateways", "rpc", "cluster.task_executor", "cluster.high_availability"},
    # clients look for the leader, too
    "cluster.high_availability": GROUND | {"gateways"},
    "cluster.task_executor": GROUND | DATA_PLANE | {"gateways", "rpc", "cluster"},
    # edges
    "api": GROUND | {"gateways", "state_processor"},
    "connectors": GROUND,
    "rest": GROUND | {"gateways", "state_processor"},
    "client": GROUND | {"api", "gateways", "rest", "cluster.high_availability"},
    "shuffle_service": GROUND | {"network", "gateways", "rpc", "cluster", "cluster.task_executor"},
    # hosts
    # in BATCH mode a Spark task runs a chain without a TaskManager: a second door
    "spark": GROUND | _BELOW_HOSTS | {"network", "state_processor", "task"},
    "cli": GROUND
    | {
        "spark",
        "api",
        "client",
        "rest",
        "gateways",
        "network",
        "shuffle_service",
        "state_processor",
        "cluster.high_availability",
    },
    # headrace/__main__.py
    "__main__": frozenset({"cli"}),
    # faces
    "datastream": frozenset({"api", "functions", "core", "connectors"}),
    "common": frozenset({"api", "functions", "core", "connectors"}),
    "table": frozenset({"core"}),
    "util": frozenset({"core"}),
    "java_gateway": frozenset({"core"}),
    # the tests' own tools
    "testing": GROUND | DATA_PLANE | _BELOW_HOSTS | FACADES | {"shuffle_service"},
    # headrace/__init__.py
    "": frozenset({"api", "client", "functions", "core", "connectors"}),
}

# Where a library that must stay out of the client's way may be imported.
LIBRARY_HOMES: Final[dict[str, frozenset[str]]] = {
    "pyspark": frozenset({"spark"}),
    "py4j": frozenset({"spark"}),
    "pandas": frozenset(),
    "cryptography": frozenset({"core"}),
    "fastapi": frozenset({"rest"}),
    "starlette": frozenset({"rest"}),
    "uvicorn": frozenset({"rest"}),
    "pydantic": frozenset({"rest"}),
    "rocksdict": frozenset({"state"}),
    "psycopg": frozenset({"connectors"}),
    "confluent_kafka": frozenset({"connectors"}),
    "boto3": frozenset({"checkpoint"}),
    "botocore": frozenset({"checkpoint"}),
    "kazoo": frozenset({"cluster.high_availability"}),
    "kubernetes": frozenset({"cluster.high_availability"}),
    "prometheus_client": frozenset({"metrics"}),
    "opentelemetry": frozenset({"metrics"}),
}


@dataclass(frozen=True)
class Import:
    """One imported module, with the place that imports it."""

    file: Path
    line: int
    module: str  # dotted, as far as the text says: "headrace.core.ids.JobId" or "pyspark.sql"

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.module}"


def folder_of(module: str) -> str:
    """The folder of the table that `module` ("headrace.cluster.job_master.x") belongs to."""
    parts = module.split(".")[1:]
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in ARROWS:
            return name
    return "" if not parts else parts[0]


def module_of(file: Path) -> str:
    """The dotted name of a file under `headrace/`."""
    parts = list(file.relative_to(ROOT).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def source_files() -> list[Path]:
    """Every Python file of the package, in a stable order."""
    return sorted(PACKAGE.rglob("*.py"))


def imports_of(file: Path) -> Iterator[Import]:
    """Every import in `file`, also those inside functions and under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), str(file))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            # ruff refuses relative imports, so `node.module` is absolute.
            for alias in node.names:
                yield Import(file, node.lineno, f"{node.module}.{alias.name}")


def violation(imported: Import) -> str | None:
    """Says what is wrong with an import, or None where an arrow leads there."""
    source = folder_of(module_of(imported.file))
    library = imported.module.split(".")[0]
    if library != "headrace":
        homes = LIBRARY_HOMES.get(library)
        if homes is None or source in homes:
            return None
        where = " or ".join(sorted(homes)) or "no folder"
        return f"{imported}: only {where} may"
    if imported.module == "headrace.__version__":
        return None
    target = folder_of(imported.module)
    if target == source or target in ARROWS.get(source, frozenset()):
        return None
    return f"{imported}: no arrow leads from {source or 'headrace'} to {target or 'headrace'}"
