"""Resources of a TaskManager's process in a Spark worker: address, scratch directory, output streams, memory.

The memory of a TaskManager on a Spark cluster is its share of the memory that the executor has outside of its heap.
A Python worker lives outside the executor's JVM. YARN and Kubernetes end a container that takes more than heap and
overhead together, so the overhead, shared by the workers of the executor, is all that they may take. A standalone
master enforces nothing: there the worker looks at its container or machine itself.
Source: Spark's documentation of spark.executor.memoryOverhead.
"""

import contextlib
import logging
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Final, TextIO

from headrace.core.redaction import DiscreetFormatter

LOCAL_DIRECTORIES_VARIABLE: Final = "SPARK_LOCAL_DIRS"
"""Where Spark names the scratch directories of an executor, separated by commas."""

_LIBRARIES: Final = ("headrace", "py4j", "pyspark")
"""Whose loggers are none of the program's."""
_SCRATCH: Final = re.compile(r"headrace-tm-(\d+)(?:-\w+)?\Z")
SOCKET_DIRECTORY_LENGTH_MAX: Final = 80
"""Bytes: what an address of a Unix socket holds (108), less its end and the name of the socket in the directory."""


def routable_address(driver_host: str) -> str:
    """Return the address of this host that `driver_host` is reached from.

    Asks the routing table through a datagram socket, which sends nothing: names of hosts often do not resolve on
    other ones.
    """
    family, kind, _, _, target = socket.getaddrinfo(driver_host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


@contextlib.contextmanager
def scratch_directory(environ: Mapping[str, str]) -> Generator[Path, None, None]:
    """Make a directory of this process alone, below what Spark gives its executor, and remove it at the end.

    Directories of processes that were killed on this executor are swept first: nobody else can. FileNotFoundError
    where Spark's directory is gone, and the executor with it.
    """
    listed = environ.get(LOCAL_DIRECTORIES_VARIABLE, "").split(",")[0]
    root = Path(listed or tempfile.gettempdir())
    sweep(root)
    # Where Spark says nothing others may write, and make a folder of a name that can be foretold.
    own = Path(tempfile.mkdtemp(prefix=f"headrace-tm-{os.getpid()}-", dir=root))
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)


def sweep(root: Path) -> None:
    """Remove what TaskManagers whose process has ended left below `root`."""
    for entry in root.iterdir():
        match = _SCRATCH.match(entry.name)
        if match is not None and not _is_running(int(match.group(1))):
            shutil.rmtree(entry, ignore_errors=True)


def socket_directory(scratch: Path) -> Path | None:
    """Return a path to `scratch` that is short enough for Unix sockets in it, or None where there is none (TCP only).

    Directories of executors are long names below each other. Linux names the directories that a process has open by
    the numbers of process and descriptor; the descriptor stays open as long as the process lives.
    """
    if len(os.fsencode(scratch)) <= SOCKET_DIRECTORY_LENGTH_MAX:
        return scratch
    if sys.platform != "linux" or not Path("/proc/self/fd").is_dir():
        return None
    return Path(f"/proc/{os.getpid()}/fd/{os.open(scratch, os.O_PATH | os.O_DIRECTORY)}")


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextlib.contextmanager
def own_streams(
    log_level: int, user_levels: Mapping[str, int] | None = None
) -> Generator[TextIO, None, None]:
    """Write logs to the process's real standard error, whatever Spark has put in the place of `sys.stderr`.

    `user_levels` are those of the program's own loggers, the root one's under the empty name.
    """
    stream = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="replace")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(DiscreetFormatter())
    logger = logging.getLogger("headrace")
    logger.addHandler(handler)
    logger.setLevel(log_level)
    logger.propagate = False
    root = logging.getLogger()
    root.addHandler(handler)
    for name, level in (user_levels or {}).items():
        logging.getLogger(name or None).setLevel(level)
    try:
        yield stream
    finally:
        logger.removeHandler(handler)
        root.removeHandler(handler)
        with contextlib.suppress(ValueError, OSError):
            sys.stdout.flush()
        stream.close()


def program_log_levels() -> dict[str, int]:
    """Return the levels that the program gave to its loggers, by name, for `own_streams` in workers."""
    named = logging.root.manager.loggerDict
    own = {
        name: logger.level
        for name, logger in named.items()
        if isinstance(logger, logging.Logger)
        and logger.level
        and name.partition(".")[0] not in _LIBRARIES
    }
    return {"": logging.root.level, **own}


_OVERHEAD_MIN_BYTES: Final = 384 << 20
_OVERHEAD_FACTOR: Final = {"yarn": 0.1, "k8s": 0.4}
"""What Spark takes where nothing is set; on Kubernetes for applications that are not the JVM's alone."""
_UNITS: Final = {
    "": 20,
    "b": 0,
    "k": 10,
    "kb": 10,
    "m": 20,
    "mb": 20,
    "g": 30,
    "gb": 30,
    "t": 40,
    "tb": 40,
}


def worker_memory_bytes(conf: Mapping[str, str]) -> int | None:
    """Return the share of one TaskManager by Spark's configuration, or None where Spark bounds nothing."""
    manager = conf.get("spark.master", "").partition("://")[0]
    factor = _OVERHEAD_FACTOR.get(manager)
    if factor is None:
        return None
    explicit = conf.get("spark.executor.memoryOverhead")
    if explicit is not None:
        overhead_bytes = _size_bytes(explicit)
    else:
        factor = float(conf.get("spark.executor.memoryOverheadFactor", factor))
        heap_bytes = _size_bytes(conf.get("spark.executor.memory", "1g"))
        overhead_bytes = max(_OVERHEAD_MIN_BYTES, int(heap_bytes * factor))
    cores = int(conf.get("spark.executor.cores", "1"))
    worker_count = max(1, cores // int(conf.get("spark.task.cpus", "1")))
    return overhead_bytes // worker_count


def _size_bytes(text: str) -> int:
    """Spark's sizes: a number with a unit; mebibytes without."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    assert match is not None and match[2] in _UNITS, f"Spark took '{text}' for a size"
    return int(match[1]) << _UNITS[match[2]]
