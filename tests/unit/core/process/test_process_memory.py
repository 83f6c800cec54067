"""Memory that a process may count on, from made-up trees of control groups."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.process.memory_parts import (
    MemoryParts,
    memory_parts,
    own_memory_parts,
    process_memory_bytes,
)
from headrace.core.process.process_memory import (
    available_memory_bytes,
    container_memory_bytes,
    physical_memory_bytes,
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


@pytest.mark.parametrize(
    ("own_groups", "files"),
    [
        (
            "0::/pod\n",
            {
                "pod/memory.max": str(64 * MB),
                "pod/memory.current": str(50 * MB),
                "pod/memory.stat": f"anon 1\ninactive_file {6 * MB}\nactive_file {4 * MB}",
            },
        ),
        (
            "3:memory:/b\n",
            {
                "memory/b/memory.limit_in_bytes": str(64 * MB),
                "memory/b/memory.usage_in_bytes": str(50 * MB),
                "memory/b/memory.stat": f"inactive_file 1\ntotal_inactive_file {9 * MB}\ntotal_active_file {MB}",
            },
        ),
    ],
    ids=["version 2", "version 1"],
)
def test_what_is_left_is_the_limit_without_what_is_in_use(
    tmp_path: Path, own_groups: str, files: dict[str, str]
) -> None:
    proc, cgroup = tree(tmp_path, own_groups, files)
    (proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  102400 kB\n")
    assert available_memory_bytes(proc, cgroup) == 24 * MB
    (proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  10240 kB\n")
    assert available_memory_bytes(proc, cgroup) == 10 * MB
    assert MB < available_memory_bytes() <= container_memory_bytes()


def test_a_group_that_may_take_more_than_the_machine_has_binds_nobody(tmp_path: Path) -> None:
    limit = physical_memory_bytes()
    files = {
        "memory/memory.limit_in_bytes": str(limit),
        "memory/memory.usage_in_bytes": str(limit - MB),
        "memory/memory.stat": "",
    }
    proc, cgroup = tree(tmp_path, "3:memory:/\n", files)
    (proc / "meminfo").write_text("MemAvailable:  102400 kB\n")
    assert available_memory_bytes(proc, cgroup) == 100 * MB


def test_what_is_configured_goes_before_what_is_found() -> None:
    configured = process_memory_bytes(Settings({"taskmanager.memory.process.size": "1 gb"}))
    assert configured == 1 << 30
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(configured)) == configured, (
        "heartbeats carry it"
    )
    assert process_memory_bytes(Settings({})) == container_memory_bytes()


def test_a_process_knows_what_it_takes(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "statm").write_text("100 25 3 1 0 9 0\n")
    assert resident_memory_bytes(tmp_path) % 25 == 0
    assert resident_memory_bytes() > MB
    assert resident_memory_bytes(tmp_path / "nowhere") > MB, "its peak, where nothing else is told"


P = "taskmanager.memory."


def parts_of(options: dict[str, str], available_mb: int = 4096) -> MemoryParts:
    return memory_parts(Settings({P + k: v for k, v in options.items()}), available_mb * MB)


@pytest.mark.parametrize(
    ("options", "mebibytes"),
    [
        # framework heap, task heap, framework off-heap, task off-heap, network, managed, overhead
        ({"process.size": "1728m"}, (128, 512, 128, 0, 153, 614, 192)),
        ({"process.size": "4g"}, (128, 1587, 128, 0, 368, 1474, 409)),
        ({"process.size": "16g"}, (128, 7936, 128, 0, 1024, 6144, 1024)),
        ({"flink.size": "1280m"}, (128, 384, 128, 0, 128, 512, 192)),
        ({"flink.size": "1280m", "process.size": "1480m"}, (128, 384, 128, 0, 128, 512, 200)),
        ({"task.heap.size": "512m", "managed.size": "256m"}, (128, 512, 128, 0, 113, 256, 192)),
        ({"process.size": "2g", "managed.size": "0"}, (128, 1402, 128, 0, 184, 0, 204)),
        ({"process.size": "2g", "managed.fraction": "0.2"}, (128, 1034, 128, 0, 184, 368, 204)),
        ({"process.size": "2g", "task.off-heap.size": "300m"}, (128, 365, 128, 300, 184, 737, 204)),
        ({"process.size": "2g", "network.max": "100m"}, (128, 749, 128, 0, 100, 737, 204)),
        # What nothing was said about is the network's, within its bounds, and then the overhead's.
        ({"process.size": "2g", "task.heap.size": "500m"}, (128, 500, 128, 0, 349, 737, 204)),
        ({}, (128, 1587, 128, 0, 368, 1474, 409)),
        # Too small for the defaults: all of them shrink, and tasks have what they find.
        ({"process.size": "384m"}, (83, 0, 83, 0, 41, 50, 125)),
    ],
)
def test_one_number_is_divided_into_parts(
    options: dict[str, str], mebibytes: tuple[int, ...]
) -> None:
    found = parts_of(options)
    sizes = (
        found.framework_heap, found.task_heap, found.framework_off_heap, found.task_off_heap,
        found.network, found.managed, found.overhead,
    )  # fmt: skip
    assert tuple(size // MB for size in sizes) == mebibytes
    assert found.is_shrunk == (options.get("process.size") == "384m")
    assert msgspec.json.decode(msgspec.json.encode(found), type=MemoryParts) == found


def test_parts_that_are_named_and_do_not_fit_are_refused() -> None:
    options = {"process.size": "1g", "task.heap.size": "900m", "managed.size": "200m"}
    with pytest.raises(ConfigurationError, match=r"process\.size.*already take 1100 mb of it"):
        parts_of(options)
    with pytest.raises(ConfigurationError, match=r"flink\.size.*it is more than"):
        parts_of({"process.size": "1g", "flink.size": "2g"})


@given(st.integers(64, 65_536), st.floats(0, 0.8), st.integers(0, 64))
def test_parts_sum_to_the_process(size_mb: int, managed: float, task_off_heap_mb: int) -> None:
    found = parts_of(
        {
            "process.size": f"{size_mb}m",
            "managed.fraction": str(managed),
            "task.off-heap.size": f"{min(task_off_heap_mb, size_mb // 2)}m",
        }
    )
    assert found.process_bytes == size_mb * MB
    assert min(found.task_heap, found.managed, found.network, found.overhead) >= 0


def test_task_managers_of_one_host_divide_its_memory_unless_a_size_is_set() -> None:
    whole = own_memory_parts(Settings({}))
    shared = own_memory_parts(Settings({"headrace.taskmanager.processes-per-host": "2"}))
    assert shared.process_bytes == whole.process_bytes // 2
    sized = {
        "headrace.taskmanager.processes-per-host": "2",
        "taskmanager.memory.process.size": "2g",
    }
    assert own_memory_parts(Settings(sized)).process_bytes == 2 << 30
