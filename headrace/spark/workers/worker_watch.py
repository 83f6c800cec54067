"""The watches that end a worker process once nobody is left who could stop it.

Spark kills only through its forking daemon; where that is gone, a worker would outlive job, executor and session.
So a TaskManager asks the kernel to die with its parent, looks at its parent's pid, and watches the connection to its
JVM for a hang-up, without ever reading from it.
"""

import ctypes
import os
import select
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace.core.threads import start_thread

WATCH_INTERVAL_MS: Final = 500
"""Interval at which the parent is looked at; a hang-up of the JVM is noticed at once."""

_PR_SET_PDEATHSIG: Final = 1
# Linux only; `select` does not name it in Python 3.11.
_POLLRDHUP: Final = 0x2000
_EXIT_CODE: Final = 70


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
    """Return whether `pid` looks like a forking daemon or a JVM: whoever adopts an orphan looks like neither.

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
