"""Facts about the tracked files that the tidiness tests judge and the test report lists."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.architecture.floor_plan import PACKAGE, ROOT, source_files

FILE_LINES_MAX: Final = 440
FILE_LINES_LOOK: Final = 320
"""Lines of code: without blanks, comments, docstrings and imports."""
FUNCTION_LINES_LOOK: Final = 60

# Written in pieces, so that this file does not hold what it forbids.
_REGISTRY_HOSTS: Final = (
    "pypi" + r"\.org",
    "pythonhosted" + r"\.org",
    "anaconda" + r"\.(org|com)",
    "npmjs" + r"\.(org|com)",
    "maven" + r"\.org",
    "repo1?" + r"\.maven",
    "maven" + r"\.apache\.org",
    "crates" + r"\.io",
    "proxy" + r"\.golang\.org",
)
# A folder at the root of somebody's machine; `{spark_home}/work/` is none, hence the look-behind.
_MACHINE_PATHS: Final = r"(?<![\w.}\-])/(work|root)/|(?<![\w.}\-])/(tmp|home)/[a-z]"
FORBIDDEN: Final = re.compile("|".join((*_REGISTRY_HOSTS, _MACHINE_PATHS)))


def tracked_files() -> list[Path]:
    """Every file under version control that exists in the tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def forbidden_lines(file: Path) -> Iterator[str]:
    """Lines of `file` with a path of a machine or the host of a package registry."""
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return  # pictures and other binary files
    for number, line in enumerate(text.splitlines(), 1):
        if FORBIDDEN.search(line):
            yield f"{file.relative_to(ROOT)}:{number} {line.strip()[:100]}"


SAME_NAMES_ALLOWED: Final[dict[str, str]] = {
    "BATCH_ROWS": "each source's own, beside the loop that it bounds",
    "BUILT_IN": "what shuffle services and others call theirs, each in its own file",
    "CheckpointStorage": "what the runtime writes to, and the object of that name that PyFlink's programs make",
    "ENTRY_POINT_GROUP": "one group for each kind of thing that is found by name",
    "HEARTBEAT_INTERVAL": "an option of the cluster, and one of the shuffle service",
    "HEARTBEAT_TIMEOUT": "an option of the cluster, and one of the shuffle service",
    "MARKERS_MAX": "a bound of each writer",
    "MASTER": "an option of the Spark host, and a node of the simulation",
    "OnError": "a callback of the network, and its like in the tests' own tools",
    "STORAGE": "an option of checkpoints, and the chaos runs that spoil their storage",
    "dataframe_source": "the call that looks for a bridge, and the bridge that it finds",
    "describe": "says in words what its only argument is: an error, a frame",
    "encode": "to bytes: a frame of the data plane, a message of the control plane",
    "main": "where a process begins",
}
"""Names that two modules may both declare, with the reason."""


# A heading that is drawn into the code: what it stands above is a file of its own, or needs none.
_BANNER: Final = re.compile(r"^\s*#\s*([-=*#~]{2,}|.*[-=*#~]{4,}\s*$)")


def is_banner(line: str) -> bool:
    return bool(_BANNER.match(line))


def banners() -> list[str]:
    """Lines of the package that are headings drawn in comments."""
    return [
        f"{file.relative_to(ROOT)}:{number} {line.strip()[:100]}"
        for file in source_files()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if is_banner(line)
    ]


def _declared_names(file: Path) -> Iterator[str]:
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar" | "ParamSpec"))):
                pass  # a letter for a type means nothing outside its file
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case _:
                pass


def names_declared_twice() -> dict[str, list[str]]:
    """Public names that more than one module of the package declares, with the modules."""
    found: dict[str, list[str]] = {}
    for file in source_files():
        for name in sorted(set(_declared_names(file))):
            if not name.startswith("_"):
                found.setdefault(name, []).append(str(file.relative_to(PACKAGE)))
    return {name: files for name, files in sorted(found.items()) if len(files) > 1}


def lines_of(file: Path) -> int:
    """Lines of code of a file: without blanks, comments, docstrings and imports."""
    text = file.read_text(encoding="utf-8")
    silent: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
                silent.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            case _:
                pass
    return sum(
        number not in silent and bool(line.strip()) and not line.lstrip().startswith("#")
        for number, line in enumerate(text.splitlines(), 1)
    )


def long_files(limit: int) -> list[str]:
    """Python files of the package and its tests with more than `limit` lines of code, longest first."""
    folders = (ROOT / name for name in ("tests", "tools", "benchmarks", "examples"))
    files = source_files() + [file for folder in folders for file in folder.rglob("*.py")]
    sizes = sorted(((lines_of(file), file) for file in files), reverse=True)
    return [f"{file.relative_to(ROOT)} ({size} lines)" for size, file in sizes if size > limit]


def long_functions(limit: int) -> list[str]:
    """Functions of the package with more than `limit` lines of code, longest first."""
    found: list[tuple[int, str]] = []
    for file in source_files():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > limit:
                    place = f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"
                    found.append((size, f"{place} ({size} lines)"))
    return [text for _, text in sorted(found, reverse=True)]
