"""Processes, ports and files of the Spark tests: to end one for good, and to see that nothing is left."""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyspark

from headrace.core.randomness import system_random

SPARK_HOME = Path(pyspark.__file__).parent
MARK_VARIABLE = "HEADRACE_TEST_MARK"
"""Put into the environment of everything a test starts; children inherit it, so leftovers are found by it."""


@dataclass(frozen=True)
class Process:
    pid: int
    command: str

    @property
    def is_jvm(self) -> bool:
        return "org.apache.spark" in self.command and "bin/java" in self.command.split("\0", 1)[0]

    @property
    def is_daemon_or_worker(self) -> bool:
        return "pyspark.worker" in self.command

    def kill(self) -> None:
        """Kill it, if it has not ended since it was found."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def pause(self) -> None:
        """Let it do nothing any more, with everything open that it has."""
        os.kill(self.pid, signal.SIGSTOP)


def new_mark() -> str:
    """A mark that no other test has, on this machine or in a process of pytest beside this one."""
    return f"{system_random().getrandbits(64):016x}"


def marked_processes(mark: str) -> list[Process]:
    """Living processes (no zombies) whose environment carries `mark`."""
    return [one for one in _all_processes() if _carries(one.pid, mark)]


def children_of(pid: int) -> list[Process]:
    return [one for one in _all_processes() if parent_pid_of(one.pid) == pid]


def parent_pid_of(pid: int) -> int:
    """The parent of a living process; 0 where the process has ended."""
    return int(_status(pid).get("PPid", "0"))


def _all_processes() -> Iterator[Process]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        pid = int(entry.name)
        if command and not _status(pid).get("State", "Z").startswith("Z"):
            yield Process(pid, command)


def _carries(pid: int, mark: str) -> bool:
    try:
        return f"{MARK_VARIABLE}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def listening_ports_of(pids: set[int]) -> set[int]:
    """TCP ports on which one of `pids` listens."""
    return {port for _, port in listening_addresses_of(pids)}


def listening_addresses_of(pids: set[int]) -> set[tuple[str, int]]:
    """Addresses and TCP ports on which one of `pids` listens."""
    inodes: dict[str, tuple[str, int]] = {}
    for table, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                host, port = fields[1].rsplit(":", 1)
                # Words of 32 bits, each in the order of this machine.
                words = np.frombuffer(bytes.fromhex(host), ">u4").astype("=u4")
                inodes[fields[9]] = socket.inet_ntop(family, words.tobytes()), int(port, 16)
    sockets = (inode for pid in pids for inode in sockets_of(pid))
    return {inodes[inode] for inode in sockets if inode in inodes}


def sockets_of(pid: int) -> set[str]:
    """Inodes of its open sockets, as the tables in /proc/net name them; none where it has ended."""
    found: set[str] = set()
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return found
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            target = os.readlink(descriptor)
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return found


def temporary_files(directory: Path) -> set[str]:
    """Names of everything in `directory` but the JVM's own bookkeeping."""
    return {name for name in os.listdir(directory) if not name.startswith("hsperfdata_")}


def executor_directories(spark_home: Path) -> set[str]:
    """Names of the applications whose executors have left directories in this Spark home."""
    work = spark_home / "work"
    return {one.name for one in work.iterdir()} if work.is_dir() else set()
