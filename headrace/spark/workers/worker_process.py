"""The process of a TaskManager in a Spark worker: its address, scratch directory, output streams, memory, and end.

On a Spark cluster a TaskManager gets a share of the executor's memory outside of the JVM heap.
A Python worker lives outside the executor's JVM. YARN and Kubernetes end a container that takes more than heap and
overhead together, so all workers of an executor share the overhead. A standalone
master enforces nothing: there the worker reads the memory of its container or machine itself.
Source: Spark's documentation of spark.executor.memoryOverhead.

Spark kills workers only through its forking daemon; if the daemon is gone, a worker would outlive job, executor and
session. So a TaskManager asks the kernel to end it with its parent, checks its parent's pid, and watches the connection
to its JVM for a hang-up, without ever reading from it.
"""

import contextlib
import ctypes
import logging
import os
import re
import select
import shutil
import signal
import socket
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Final, TextIO

from pyspark import TaskContext

from headrace.core.process.process_log import ProcessLog
from headrace.core.redaction import DiscreetFormatter
from headrace.core.threads import start_thread

_CRASH_REPORTS_VARIABLE: Final = "PYTHON_FAULTHANDLER_DIR"
LOCAL_DIRECTORIES_VARIABLE: Final = "SPARK_LOCAL_DIRS"
"""Environment variable in which Spark names the scratch directories of an executor, separated by commas."""

_LINE: Final = "%(asctime)s %(levelname)s [%(threadName)s] %(name)s: %(message)s"
"""Format of log lines on standard error, which all TaskManagers share: the thread of a task is named as its subtask."""
_LIBRARIES: Final = ("headrace", "py4j", "pyspark")
"""Packages whose loggers do not belong to the program."""
_SCRATCH: Final = re.compile(r"headrace-tm-(\d+)(?:-\w+)?\Z")
PASSED_ON: Final = signal.SIGUSR1
"""Signal by which a worker forwards SIGTERM to the process that it started, which may have received SIGTERM too."""
SOCKET_DIRECTORY_LENGTH_MAX: Final = 80
"""Maximum length of a Unix socket's directory in bytes: an address has 108, less its end and the socket's name."""
_OVERHEAD_MIN_BYTES: Final = 384 << 20
_OVERHEAD_FACTOR: Final = {"yarn": 0.1, "k8s": 0.4}
"""Spark's default memory overhead; on Kubernetes the default for applications that do not only use the JVM."""
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
WATCH_INTERVAL_MS: Final = 500
"""Interval at which the parent is checked, in ms; a hang-up of the JVM is noticed at once."""
_PR_SET_PDEATHSIG: Final = 1
# Linux only; `select` does not name it in Python 3.11.
_POLLRDHUP: Final = 0x2000
_EXIT_CODE: Final = 70


def routable_address(driver_host: str) -> str:
    """Return the address of this host from which `driver_host` is reached.

    Asks the routing table through a datagram socket, which sends nothing, as host names often do not resolve on
    other hosts.
    """
    family, kind, _, _, target = socket.getaddrinfo(driver_host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


@contextlib.contextmanager
def scratch_directory(environ: Mapping[str, str]) -> Generator[Path, None, None]:
    """Create a directory of this process, below the executor's scratch directory, and remove it at the end.

    Directories of killed processes on this executor are removed first. FileNotFoundError if Spark's directory is
    gone, and the executor with it.
    """
    listed = environ.get(LOCAL_DIRECTORIES_VARIABLE, "").split(",")[0]
    root = Path(listed or tempfile.gettempdir())
    sweep(root)
    if reports := environ.get(_CRASH_REPORTS_VARIABLE):
        sweep_crash_reports(Path(reports))
    # If Spark sets no directory, others may write there, and create a folder with a predictable name.
    own = Path(tempfile.mkdtemp(prefix=f"headrace-tm-{os.getpid()}-", dir=root))
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)


def sweep(root: Path) -> None:
    """Remove directories of TaskManagers below `root` whose process has ended."""
    for entry in root.iterdir():
        match = _SCRATCH.match(entry.name)
        if match is None or _is_running(int(match.group(1))):
            continue
        with contextlib.suppress(FileNotFoundError):
            if entry.lstat().st_uid != os.geteuid():
                continue
            shutil.rmtree(entry, ignore_errors=True)


def sweep_crash_reports(directory: Path) -> None:
    """Remove the empty crash reports of processes that have ended.

    Spark has each Python worker open a report, named after its process, and removes it only if the worker returns. A
    report with stacks belongs to a crash, and Spark reads it.
    """
    for entry in directory.iterdir():
        if entry.name.isdecimal() and not _is_running(int(entry.name)):
            with contextlib.suppress(FileNotFoundError):
                if entry.lstat().st_size == 0:
                    entry.unlink()


def socket_directory(scratch: Path) -> Path | None:
    """Return a path to `scratch` that is short enough for Unix sockets in it, or None if there is none (TCP only).

    Paths of executor directories are long. Linux also names the directories that a process has open by
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
    log_level: int,
    user_levels: Mapping[str, int] | None = None,
    log: ProcessLog | None = None,
) -> Generator[TextIO, None, None]:
    """Write logs to `log` and to the real standard error, even if Spark has replaced `sys.stderr`.

    `user_levels` are the levels of the program's own loggers; the root logger's name is empty. `log_level` is that of
    Headrace's loggers on standard error; the log file has a separate level for them.
    """
    stream = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="replace")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(DiscreetFormatter(_LINE))
    handlers = [handler] if log is None else [handler, log.handler]
    logger = logging.getLogger("headrace")
    logger.setLevel(log_level if log is None else min(log_level, log.level))
    logger.propagate = False

    def is_shown(record: logging.LogRecord) -> bool:
        """Return whether standard error shows a record.

        For a logger with its own level the level has decided already.
        """
        if record.levelno >= log_level or not record.name.startswith("headrace"):
            return True
        return logging.getLogger(record.name).getEffectiveLevel() != logger.level

    handler.addFilter(is_shown)
    root = logging.getLogger()
    for each in handlers:
        logger.addHandler(each)
        root.addHandler(each)
    for name, level in (user_levels or {}).items():
        logging.getLogger(name or None).setLevel(level)
    try:
        yield stream
    finally:
        for each in handlers:
            logger.removeHandler(each)
            root.removeHandler(each)
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


def external_resources(task_context: TaskContext | None) -> dict[str, tuple[str, ...]]:
    """Return the addresses of the external resources that Spark reserves for this task, by name."""
    found = {} if task_context is None else task_context.resources()
    return {name: tuple(information.addresses) for name, information in found.items()}


def worker_memory_bytes(conf: Mapping[str, str]) -> int | None:
    """Return the memory of one TaskManager from Spark's configuration, or None if Spark sets no limit."""
    manager = conf.get("spark.master", "").partition("://")[0]
    factor = _OVERHEAD_FACTOR.get(manager)
    if factor is None:
        return None
    explicit = conf.get("spark.executor.memoryOverhead")
    if explicit is not None:
        overhead_bytes = size_bytes(explicit)
    else:
        factor = float(conf.get("spark.executor.memoryOverheadFactor", factor))
        heap_bytes = size_bytes(conf.get("spark.executor.memory", "1g"))
        overhead_bytes = max(_OVERHEAD_MIN_BYTES, int(heap_bytes * factor))
    cores = int(conf.get("spark.executor.cores", "1"))
    worker_count = max(1, cores // int(conf.get("spark.task.cpus", "1")))
    return overhead_bytes // worker_count


def size_bytes(text: str) -> int:
    """Return a Spark size in bytes: a number with a unit; without one, mebibytes."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    assert match is not None and match[2] in _UNITS, f"Spark took '{text}' for a size"
    return int(match[1]) << _UNITS[match[2]]


def die_with_parent(parent_pid: int) -> bool:
    """Ask the kernel for SIGKILL when the parent ends; return False if it has ended already or the kernel cannot."""
    if sys.platform != "linux":
        return os.getppid() == parent_pid
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        return False
    # The parent may have ended between the fork and the call.
    return os.getppid() == parent_pid


def is_spark_process(pid: int) -> bool:
    """Return whether `pid` looks like a forking daemon or a JVM, unlike a process that adopts orphans.

    A worker whose daemon died between the fork and its first line of code is an orphan from the start. True if
    it cannot be found out.
    """
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return not Path("/proc/self/cmdline").exists()
    return b"pyspark" in command or b"java" in command


def connected_stream_descriptors() -> tuple[int, ...]:
    """Return descriptors of this process that are connected stream sockets.

    Called first in a worker, when the only such sockets are those of the connection to the JVM.
    """
    found: list[int] = []
    for name in os.listdir("/proc/self/fd") if Path("/proc/self/fd").is_dir() else ():
        descriptor = int(name)
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode) and _is_connected_stream(descriptor):
                found.append(descriptor)
        except OSError:
            continue  # the descriptor of the listing itself, already closed
    return tuple(sorted(found))


def _is_connected_stream(descriptor: int) -> bool:
    watched = socket.socket(fileno=os.dup(descriptor))
    with watched:
        if watched.type != socket.SOCK_STREAM:
            return False
        try:
            watched.getpeername()
        except OSError:
            return False
        return True


def end_process(reason: str) -> None:
    """End this process at once, with a last line on standard error that says why."""
    os.write(2, f"headrace worker {os.getpid()} ends: {reason}\n".encode())
    os._exit(_EXIT_CODE)


def on_termination(tell: Callable[[], None]) -> Callable[[int, object], None]:
    """Return a handler of SIGTERM and PASSED_ON that calls `tell` only once if one SIGTERM arrives both ways."""
    counts = {signal.SIGTERM: 0, PASSED_ON: 0}

    def handle(number: int, _: object) -> None:
        own = signal.Signals(number)
        [other] = counts.keys() - {own}
        counts[own] += 1
        if counts[own] > counts[other]:
            tell()

    return handle


class ParentWatch:
    """A thread that calls `on_orphaned(reason)` when the parent or the JVM is gone; it ends with `stop()`."""

    def __init__(
        self,
        parent_pid: int,
        descriptors: tuple[int, ...],
        on_orphaned: Callable[[str], None] = end_process,
    ) -> None:
        self._parent_pid = parent_pid
        self._poller = select.poll()
        for descriptor in descriptors:
            # Only the peer's hang-up: Spark reads the data.
            self._poller.register(descriptor, _POLLRDHUP | select.POLLHUP | select.POLLERR)
        self._on_orphaned = on_orphaned
        self._stopped = threading.Event()
        self._wake_reader, self._wake_writer = os.pipe()
        self._poller.register(self._wake_reader, select.POLLIN)
        self._thread = start_thread("headrace-parent-watch", self._run)

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stopped.set()
        os.write(self._wake_writer, b"x")
        self._thread.join()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _run(self) -> None:
        while not self._stopped.is_set():
            events = self._poller.poll(WATCH_INTERVAL_MS)
            if self._stopped.is_set():
                return
            if any(descriptor != self._wake_reader for descriptor, _ in events):
                self._on_orphaned("the connection to its Spark executor has hung up")
                return
            if os.getppid() != self._parent_pid:
                self._on_orphaned(f"its parent process {self._parent_pid} is gone")
                return
