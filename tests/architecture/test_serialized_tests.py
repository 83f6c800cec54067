"""`make test-serialized` runs every test that calls endpoints, and no folder of tests is forgotten."""

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tests.architecture.floor_plan import ROOT

# Whoever makes one of these has endpoints that call each other within one process.
SERVICES = {
    "headrace.cluster.cluster",
    "headrace.cluster.cluster_handle",
    "headrace.cluster.entrypoint",
    "headrace.cluster.minicluster",
    "headrace.rpc.loopback",
    "headrace.rpc.service",
    "headrace.rpc.tcp",
    "headrace.testing.fixtures",
    "headrace.testing.minicluster_executor",
    "testkit.simulation.simulated_cluster",
}
# Real Spark: its processes are started by the programs under test, and only those call each other. The dashboard's
# tests need a browser, and look at what pages show; those of Flink's faces need its distribution.
EXEMPT = {"tests/spark", "tests/dashboard", "tests/flink"}


def imports(file: Path) -> Iterator[str]:
    """Modules that a file imports anywhere in it, `from package import module` included."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                yield module
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case _:
                pass


@functools.cache
def uses_rpc(file: Path) -> bool:
    """Whether a test file, or a file of the tests that it imports, makes an RpcService."""
    modules = set(imports(file))
    own = (ROOT / f"{name.replace('.', '/')}.py" for name in modules if name.startswith("tests."))
    return bool(modules & SERVICES) or any(uses_rpc(path) for path in own if path.is_file())


def makefile_list(name: str) -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = re.findall(rf"^{name} := (.*)$", text, re.MULTILINE)
    return set(line.split())


def folders_that_use_rpc() -> set[str]:
    files = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "tests").rglob("conftest.py")]
    folders = {file.parent.relative_to(ROOT).as_posix() for file in files if uses_rpc(file)}
    return folders - {"tests"} - EXEMPT


def test_every_folder_whose_tests_use_rpc_runs_serialised_too() -> None:
    found = folders_that_use_rpc()
    assert {"tests/unit/rpc", "tests/simulation", "tests/integration/programs"} <= found
    listed = {PurePosixPath(name) for name in makefile_list("RPC_TESTS")}
    # A folder that is listed brings those below it.
    assert {
        name
        for name in found
        if listed.isdisjoint({PurePosixPath(name), *PurePosixPath(name).parents})
    } == set()


def printed_by_make(*arguments: str) -> str:
    command = ["make", "--no-print-directory", "--dry-run", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def commands_of_ci(target: str) -> list[str]:
    """Arguments with which `.ci/run` calls a target."""
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    return re.findall(rf"{target} (\S+?=[\w/-]+)", text)


def test_continuous_integration_runs_them_in_parts() -> None:
    (whole,) = re.findall(r"--force-serialization (.*)", printed_by_make("test-serialized"))
    assert set(whole.split()) == makefile_list("RPC_TESTS")
    in_parts = [
        folder
        for argument in commands_of_ci("test-serialized")
        for folder in re.findall(r"tests/[\w/]+", printed_by_make("test-serialized", argument))
    ]
    # Its seeds are among those of the thorough run.
    assert commands_of_ci("test-thorough") == ["AFTER=test-serialized"]
    thorough = printed_by_make("test-thorough", "AFTER=test-serialized").replace("\\\n", " ")
    assert re.search(r"--force-serialization .*tests/simulation", thorough)
    in_parts.append("tests/simulation")
    assert sorted(in_parts) == sorted(whole.split())


def test_continuous_integration_runs_each_folder_of_integration_tests_in_one_of_two_steps() -> None:
    folders = {file.parents[0] for file in (ROOT / "tests" / "integration").rglob("test_*.py")}
    names = {f"tests/integration/{one.relative_to(ROOT).parts[2]}" for one in folders}
    assert commands_of_ci("test-integration") == ["AFTER=test-serialized"]
    printed = printed_by_make("test-integration", "AFTER=test-serialized")
    plain = set(re.findall(r"tests/integration/\w+", printed))
    assert plain == names - makefile_list("RPC_TESTS") and len(plain) > 3
