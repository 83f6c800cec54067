"""Memory that a process may count on, from made-up trees of control groups."""

from pathlib import Path

import pytest

from headrace.core.config import Settings
from headrace.core.process.process_memory import (
    container_memory_bytes,
    process_memory_bytes,
    resident_memory_bytes,
)

MB = 1 << 20


def tree(root: Path, own_groups: str, limits: dict[str, str]) -> tuple[Path, Path]:
    """Make `proc` and `cgroup` directories; return both."""
    proc, cgroup = root / "proc", root / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(own_groups)
    for name, text in limits.items():
        file = cgroup / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return proc, cgroup


@pytest.mark.parametrize(
    ("own_groups", "limits"),
    [
        ("0::/\n", {"memory.max": str(64 * MB)}),
        ("0::/pod/container\n", {"pod/container/memory.max": str(64 * MB)}),
        (
            "0::/pod/container\n",
            {"pod/memory.max": str(64 * MB), "pod/container/memory.max": "max"},
        ),
        (
            "4:cpu,cpuacct:/a\n3:memory:/docker/b\n",
            {"memory/docker/b/memory.limit_in_bytes": str(64 * MB)},
        ),
        # The host's path, while only the container's own group is mounted.
        ("3:memory:/docker/b\n", {"memory/memory.limit_in_bytes": str(64 * MB)}),
    ],
    ids=["own root", "nested", "limit above", "version 1", "version 1 in a container"],
)
def test_the_limit_of_the_container_holds(
    tmp_path: Path, own_groups: str, limits: dict[str, str]
) -> None:
    assert container_memory_bytes(*tree(tmp_path, own_groups, limits)) == 64 * MB


@pytest.mark.parametrize(
    ("own_groups", "limits"),
    [
        ("", {}),
        ("0::/\n", {"memory.max": "max"}),
        ("3:memory:/\n", {"memory/memory.limit_in_bytes": str((1 << 63) - 4096)}),
    ],
    ids=["no groups", "no limit", "no limit in version 1"],
)
def test_without_a_limit_it_is_the_machines(
    tmp_path: Path, own_groups: str, limits: dict[str, str]
) -> None:
    nowhere = container_memory_bytes(tmp_path / "a", tmp_path / "b")
    assert container_memory_bytes(*tree(tmp_path, own_groups, limits)) == nowhere > 64 * MB


def test_what_is_configured_goes_before_what_is_found() -> None:
    assert process_memory_bytes(Settings({"taskmanager.memory.process.size": "1 gb"})) == 1 << 30
    assert process_memory_bytes(Settings({})) == container_memory_bytes()


def test_a_process_knows_what_it_takes(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "statm").write_text("100 25 3 1 0 9 0\n")
    assert resident_memory_bytes(tmp_path) % 25 == 0
    assert resident_memory_bytes() > MB
    assert resident_memory_bytes(tmp_path / "nowhere") > MB, "its peak, where nothing else is told"
