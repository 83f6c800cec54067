"""Memory of this process according to the kernel: its limit and its use.

A container's limit applies if it is below the machine's memory.
"""

import os
import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

_PROC: Final = Path("/proc")
_CGROUP: Final = Path("/sys/fs/cgroup")


def container_memory_bytes(proc: Path = _PROC, cgroup: Path = _CGROUP) -> int:
    """Return the smallest limit of this process's control groups, at most the physical memory."""
    return min([physical_memory_bytes(), *(limit for _, limit in _limited_groups(proc, cgroup))])


def available_memory_bytes(proc: Path = _PROC, cgroup: Path = _CGROUP) -> int:
    """Return the memory that processes can still take before the kernel swaps or kills one.

    This is the least of the free memory of the machine and of this process's control groups. Memory that the kernel
    only uses to cache files counts as free.
    """
    found = [_machine_available_bytes(proc)]
    for folder, limit_bytes in _limited_groups(proc, cgroup):
        used = _group_used_bytes(folder)
        if used is not None:
            found.append(max(0, limit_bytes - used))
    return min(found)


def physical_memory_bytes() -> int:
    """Return the memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def resident_memory_bytes(proc: Path = _PROC) -> int:
    """Return the memory that this process uses now, or its maximum so far if the kernel does not report it."""
    try:
        pages = int((proc / "self" / "statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


def _machine_available_bytes(proc: Path) -> int:
    try:
        lines = (proc / "meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return physical_memory_bytes()
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found else physical_memory_bytes()


def _group_used_bytes(folder: Path) -> int | None:
    """Return the memory use of a group, in either version of control groups, without cached files."""
    for usage, prefix in (("memory.current", ""), ("memory.usage_in_bytes", "total_")):
        used = _limit_of(folder / usage)
        if used is not None:
            try:
                lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
            except OSError:
                return used
            files = (f"{prefix}active_file ", f"{prefix}inactive_file ")
            cached = [int(line.split()[1]) for line in lines if line.startswith(files)]
            return max(0, used - sum(cached))
    return None


def _limited_groups(proc: Path, cgroup: Path) -> Iterator[tuple[Path, int]]:
    """Yield folders and limits of the groups of both versions; a group is also limited by its parents.

    A limit above the machine's memory is left out, because version 1 has a limit everywhere.
    """
    try:
        lines = (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            root, name = cgroup, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = cgroup / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = PurePosixPath(path.lstrip("/"))
        # In a container the path may be the host's, which is not mounted here: the group itself is then the root.
        for each in (group, *group.parents):
            limit = _limit_of(root / each / name)
            if limit is not None and limit < physical_memory_bytes():
                yield root / each, limit


def _limit_of(file: Path) -> int | None:
    try:
        text = file.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max" is none
