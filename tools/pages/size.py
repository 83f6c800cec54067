"""size.md: how large each folder of the wheel is, and which Protocols have at most one implementation.

Made by `make docs`; `python -m tools.pages.size` prints it. `--check` does not compare it, since every change of code
would make it stale; tests/architecture/test_size.py holds ceilings instead.
"""

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from tests.architecture.floor_plan import PACKAGE, source_files
from tools.pages.markdown import table

_NO_CODE: Final = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)
TESTS_OWN: Final = frozenset({"testing"})
"""Folders whose classes are no production implementations."""

THIN_PROTOCOLS: Final = {
    "BlobServerGateway": "a gateway of RPC",
    "ChannelReceiver": "sessions lie below the gates whose channels they feed",
    "FileLayer": "chaos tests put a disk here that fails",
    "JobMasterGateway": "a gateway of RPC",
    "KafkaCluster": "tests of commits put a broker here that fails at a given call",
    "LeaderRetrievalGateway": "a gateway of RPC",
    "LockWatcherGateway": "a gateway of RPC",
    "Output": "the operator harness puts an output here that refuses batches",
    "ProcessingTimeService": "users' functions see it, and not the mailbox behind it",
    "QueryLog": "the queries that are shown are tested without Spark",
    "Relay": "the transport of `headrace trace` lies below the tap that reads it",
    "ResourceManagerGateway": "a gateway of RPC",
    "RunningTask": "tests of the TaskExecutor put tasks without a data plane here",
    "ShuffleServiceGateway": "a gateway of RPC",
    "StoredPartitions": "tests of the TaskExecutor put results without a data plane here",
    "SubtaskContext": "users' functions see it; operators lie above functions",
    "SubtaskReportGateway": "a gateway of RPC",
    "TaskExecutorGateway": "a gateway of RPC",
    "TaskLoop": "a task imports its runner, which steps through the task's loop",
    "UserMetricGroup": "users' functions see it; metrics and functions do not import each other",
    "WorkerJobs": "the ResourceManager's driver is tested without Spark",
    "WorkerOutputGateway": "a gateway of RPC",
}
"""Protocols with at most one implementation in the wheel, with the reason of each."""


@dataclass
class Size:
    """Of a folder: code is what is left without imports, blank lines, comments and docstrings."""

    module_count: int = 0
    code_line_count: int = 0


@dataclass(frozen=True)
class DeclaredClass:
    """A class as its text declares it; `members` are methods and attributes, those of `__init__` included."""

    file: str
    name: str
    bases: tuple[str, ...]
    members: frozenset[str]

    @property
    def is_protocol(self) -> bool:
        """Whether it is an interface itself."""
        return "Protocol" in self.bases


@dataclass(frozen=True)
class Interface:
    """A Protocol and the production classes that have all of its members."""

    file: str
    name: str
    implementations: tuple[str, ...] = field(default=())


def code_line_count(text: str) -> int:
    """Return the number of lines with code of a module."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_import or (is_text and isinstance(node.value.value, str)):
            assert node.end_lineno is not None
            lines.difference_update(range(node.lineno, node.end_lineno + 1))
    return len(lines)


@cache
def sizes() -> dict[str, Size]:
    """Return the size of each folder, by its name; modules of the package itself are "headrace"."""
    found: dict[str, Size] = {}
    for file in source_files():
        size = found.setdefault(_folder(file), Size())
        size.module_count += 1
        size.code_line_count += code_line_count(file.read_text(encoding="utf-8"))
    return found


@cache
def interfaces() -> tuple[Interface, ...]:
    """Return every Protocol with its production implementations, in order of files."""
    classes = [each for file in source_files() for each in _classes(file)]
    by_name: dict[str, list[DeclaredClass]] = {}
    for each in classes:
        by_name.setdefault(each.name, []).append(each)
    concrete = [
        (each, _all_members(each, by_name), _all_bases(each, by_name))
        for each in classes
        if not each.is_protocol and each.file.split("/")[0] not in TESTS_OWN
    ]
    return tuple(
        Interface(
            protocol.file,
            protocol.name,
            tuple(
                each.name
                for each, members, bases in concrete
                if protocol.name in bases or wanted <= members
            ),
        )
        for protocol in classes
        if protocol.is_protocol and (wanted := _all_members(protocol, by_name))
    )


def thin_interfaces() -> list[Interface]:
    """Return the Protocols with at most one production implementation."""
    return [each for each in interfaces() if len(each.implementations) <= 1]


def size_page() -> str:
    """Return the page."""
    folders = sorted(sizes().items(), key=lambda item: -item[1].code_line_count)
    rows = [(f"`{name}`", f"{s.module_count}", f"{s.code_line_count:,}") for name, s in folders]
    total = [s for _, s in folders]
    rows.append(
        (
            "the wheel",
            f"{sum(s.module_count for s in total)}",
            f"{sum(s.code_line_count for s in total):,}",
        )
    )
    thin = thin_interfaces()
    lines = [
        "# Size",
        "",
        "Code lines are those without imports, blank lines, comments and docstrings. `make docs` counts them anew, and",
        "`tests/architecture/test_size.py` has a ceiling for each folder.",
        "",
        *table(("folder", "modules", "code lines"), rows),
        "",
        "## Protocols with at most one implementation",
        "",
        f"{len(thin)} of {len(interfaces())} Protocols have at most one implementation here, each for a reason.",
        "",
        *table(
            ("file", "Protocol", "implementation", "reason"),
            [
                (
                    f"`{each.file}`",
                    f"`{each.name}`",
                    _implementation(each),
                    THIN_PROTOCOLS.get(each.name, ""),
                )
                for each in thin
            ],
        ),
    ]
    return "\n".join(lines) + "\n"


def _implementation(interface: Interface) -> str:
    return f"`{interface.implementations[0]}`" if interface.implementations else "none here"


def _folder(file: Path) -> str:
    parts = file.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else "headrace"


def _classes(file: Path) -> Iterator[DeclaredClass]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            bases = tuple(_base_name(base) for base in node.bases)
            yield DeclaredClass(
                file.relative_to(PACKAGE).as_posix(),
                node.name,
                bases,
                frozenset(_members(node)),
            )


def _base_name(base: ast.expr) -> str:
    """Return the last part of a base's name, without what it is a generic of; asyncio's Protocol keeps its module."""
    named = base.value if isinstance(base, ast.Subscript) else base
    name = ast.unparse(named)
    return name if name == "asyncio.Protocol" else name.rpartition(".")[2]


def _members(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        match each:
            case ast.FunctionDef(name="__init__") as function:
                for inner in ast.walk(function):
                    match inner:
                        case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                            yield name
                        case _:
                            pass
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case _:
                pass


def _all_bases(each: DeclaredClass, by_name: dict[str, list[DeclaredClass]]) -> frozenset[str]:
    return frozenset(base for one in _family(each, by_name) for base in one.bases)


def _all_members(each: DeclaredClass, by_name: dict[str, list[DeclaredClass]]) -> frozenset[str]:
    """Return the members of a class and of its bases."""
    return frozenset(name for one in _family(each, by_name) for name in one.members)


def _family(
    each: DeclaredClass, by_name: dict[str, list[DeclaredClass]]
) -> Iterable[DeclaredClass]:
    """Return a class and its bases; of several with one name, the first."""
    seen: dict[str, DeclaredClass] = {}
    waiting = [each]
    while waiting:
        one = waiting.pop()
        if one.name not in seen:
            seen[one.name] = one
            waiting += [by_name[base][0] for base in one.bases if base in by_name]
    return seen.values()


if __name__ == "__main__":
    print(size_page(), end="")
