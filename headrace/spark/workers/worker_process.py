"""Process of a TaskManager in a Spark worker: its address, scratch directory, output streams and memory, and its end.

The memory of a TaskManager on a Spark cluster is its share of the memory that the executor has outside of its heap.
A Python worker lives outside the executor's JVM. YARN and Kubernetes end a container that takes more than heap and
overhead together, so the overhead, shared by the workers of the executor, is all that they may take. A standalone
master enforces nothing: there the worker looks at its container or machine itself.
Source: Spark's documentation of spark.executor.memoryOverhead.

Spark kills only through its forking daemon; where that is gone, a worker would outlive job, executor and session.
So a TaskManager asks the kernel to die with its parent, looks at its parent's pid, and watches the connection to its
JVM for a hang-up, without ever reading from it.
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
"""Line of a log on standard error, where all TaskManagers write: the thread of a task is named as its subtask."""
_LIBRARIES: Final = ("headrace", "py4j", "pyspark")
"""Whose loggers are none of the program's."""
_SCRATCH: Final = re.compile(r"headrace-tm-(\d+)(?:-\w+)?\Z")
PASSED_ON: Final = signal.SIGUSR1
"""By this a worker passes SIGTERM on to the process that it has begun, which may have got that too."""
SOCKET_DIRECTORY_LENGTH_MAX: Final = 80
"""Bytes: the size of a Unix socket's address (108), without its end and the socket's name in the directory."""
_OVERHEAD_MIN_BYTES: Final = 384 << 20
_OVERHEAD_FACTOR: Final = {"yarn": 0.1, "k8s": 0.4}
"""Spark's defaults; on Kubernetes those for applications that are not the JVM's alone."""
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
"""Interval at which the parent is looked at; a hang-up of the JVM is noticed at once."""
_PR_SET_PDEATHSIG: Final = 1
# Linux only; `select` does not name it in Python 3.11.
_POLLRDHUP: Final = 0x2000
_EXIT_CODE: Final = 70


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
    """Make a directory of this process alone, below the executor's scratch directory, and remove it at the end.

    What processes that were killed on this executor have left is swept first: nobody else can. FileNotFoundError
    where Spark's directory is gone, and the executor with it.
    """
    listed = environ.get(LOCAL_DIRECTORIES_VARIABLE, "").split(",")[0]
    root = Path(listed or tempfile.gettempdir())
    sweep(root)
    if reports := environ.get(_CRASH_REPORTS_VARIABLE):
        sweep_crash_reports(Path(reports))
    # Where Spark says nothing others may write, and make a folder of a name that can be foretold.
    own = Path(tempfile.mkdtemp(prefix=f"headrace-tm-{os.getpid()}-", dir=root))
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)


def sweep(root: Path) -> None:
    """Remove directories below `root` of TaskManagers whose process has ended."""
    for entry in root.iterdir():
        match = _SCRATCH.match(entry.name)
        if match is None or _is_running(int(match.group(1))):
            continue
        with contextlib.suppress(FileNotFoundError):
            if entry.lstat().st_uid != os.geteuid():
                continue
            shutil.rmtree(entry, ignore_errors=True)


def sweep_crash_reports(directory: Path) -> None:
    """Remove the empty reports of processes that have ended.

    Spark has each Python worker open one, named after its process, and removes it only where the worker returns. One
    with stacks in it is of a crash, and Spark's to read.
    """
    for entry in directory.iterdir():
        if entry.name.isdecimal() and not _is_running(int(entry.name)):
            with contextlib.suppress(FileNotFoundError):
                if entry.lstat().st_size == 0:
                    entry.unlink()


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
    log_level: int,
    user_levels: Mapping[str, int] | None = None,
    log: ProcessLog | None = None,
) -> Generator[TextIO, None, None]:
    """Write logs to `log` and to the real standard error, whatever Spark has put in the place of `sys.stderr`.

    `user_levels` are those of the program's own loggers, the root one's under the empty name. `log_level` is that of
    Headrace's loggers on standard error; the log file has a level of its own for them.
    """
    stream = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="replace")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(DiscreetFormatter(_LINE))
    handlers = [handler] if log is None else [handler, log.handler]
    logger = logging.getLogger("headrace")
    logger.setLevel(log_level if log is None else min(log_level, log.level))
    logger.propagate = False

    def is_shown(record: logging.LogRecord) -> bool:
        """Keep what only the log file is to have; a logger with a level of its own has decided already."""
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
    """Return the addresses of the external resources that Spark keeps for this task alone, by name."""
    found = {} if task_context is None else task_context.resources()
    return {name: tuple(information.addresses) for name, information in found.items()}


def worker_memory_bytes(conf: Mapping[str, str]) -> int | None:
    """Return the share of one TaskManager by Spark's configuration, or None where Spark bounds nothing."""
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
    """Spark's sizes: a number with a unit; mebibytes without."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    assert match is not None and match[2] in _UNITS, f"Spark took '{text}' for a size"
    return int(match[1]) << _UNITS[match[2]]


def die_with_parent(parent_pid: int) -> bool:
    """Ask the kernel for SIGKILL when the parent ends. False if it has ended already or the kernel cannot."""
    if sys.platform != "linux":
        return os.getppid() == parent_pid
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        return False
    # The parent may have ended between the fork and the call.
    return os.getppid() == parent_pid


def is_spark_process(pid: int) -> bool:
    """Return whether `pid` looks like a forking daemon or a JVM: a process that adopts an orphan looks like neither.

    A worker whose daemon died between the fork and its first line of code is an orphan from the start. True where
    this cannot be told.
    """
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return not Path("/proc/self/cmdline").exists()
    return b"pyspark" in command or b"java" in command


def connected_stream_descriptors() -> tuple[int, ...]:
    """Return descriptors of this process that are connected stream sockets.

    Called first in a worker, when the only ones are those of the connection to the JVM.
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
    """End this process at once, with a last line that says why."""
    os.write(2, f"headrace worker {os.getpid()} ends: {reason}\n".encode())
    os._exit(_EXIT_CODE)


def on_termination(tell: Callable[[], None]) -> Callable[[int, object], None]:
    """Return a handler of SIGTERM and PASSED_ON that calls `tell` once where one SIGTERM comes both ways."""
    counts = {signal.SIGTERM: 0, PASSED_ON: 0}

    def handle(number: int, _: object) -> None:
        own = signal.Signals(number)
        [other] = counts.keys() - {own}
        counts[own] += 1
        if counts[own] > counts[other]:
            tell()

    return handle


class ParentWatch:
    """A thread that calls `on_orphaned(reason)` once the parent or the JVM is gone. Stops at `stop()`."""

    def __init__(
        self,
        parent_pid: int,
        descriptors: tuple[int, ...],
        on_orphaned: Callable[[str], None] = end_process,
    ) -> None:
        self._parent_pid = parent_pid
        self._poller = select.poll()
        for descriptor in descriptors:
            # Only the peer's hang-up: whether there is something to read is Spark's business.
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
