"""LocalProcess: the process of a cluster of this machine, which can be ended by signals."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from headrace.cli.daemon.daemon_process import is_daemon
from headrace.core.clock import SystemClock
from headrace.core.errors import ErrorDomain
from headrace.core.process.process_start import parent_pid, start_ticks
from headrace.core.security.tls import is_loopback
from headrace.rest.client import CLIENT_TIMEOUT, RETRY_MAX_ATTEMPTS
from headrace.rest.client_errors import RestError
from headrace.rest.home.connections import ClusterConnection

IMPATIENT: Final = {RETRY_MAX_ATTEMPTS.key: "1", CLIENT_TIMEOUT.key: "5 s"}
"""Settings of a client that asks a cluster to end: one try, because its process is ended by force without an answer."""
_FORCE_TIMEOUT_S: Final = 10.0
_LOOK_S: Final = 0.1


class StillRunningError(RestError):
    """Raised if a cluster that was told to end has not ended in time."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, connection: ClusterConnection, waited_s: float, hint: str) -> None:
        process = f" (process {connection.pid})" if connection.pid else ""
        place = f"at {connection.address}" if connection.address else f"'{connection.name}'"
        super().__init__(f"the cluster {place}{process} still runs after {waited_s:g} s: {hint}")
        self.connection = connection


class Patience:
    """The time for which a user waits for the end of a cluster; all steps of a command share it."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s: Final = timeout_s
        self._clock: Final = SystemClock()
        self._end_ms: Final = self._clock.monotonic_ms() + timeout_s * 1000

    @property
    def left_s(self) -> float:
        """Return the remaining seconds, at least 0."""
        return max(0.0, (self._end_ms - self._clock.monotonic_ms()) / 1000)


class LocalProcess:
    """The process of a cluster of this machine. Its start time tells it from a later process with the same id."""

    def __init__(self, pid: int, started: int) -> None:
        self.pid: Final = pid
        self._started: Final = started

    @classmethod
    def of(cls, connection: ClusterConnection) -> "LocalProcess | None":
        """Return the process, or None if the cluster is elsewhere or its process is not known."""
        host = urlsplit(connection.address).hostname or ""
        if connection.pid <= 0 or not connection.start_ticks or not is_loopback(host):
            return None
        return cls(connection.pid, connection.start_ticks)

    def is_gone(self) -> bool:
        """Return whether the process has ended."""
        return start_ticks(self.pid) != self._started

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process; does nothing if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                # This signals the opened process, even if another process gets its id a moment later.
                if not self.is_gone():
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)

    def await_end(
        self,
        connection: ClusterConnection,
        patience: Patience,
        *,
        is_forced: bool,
        note: Callable[[str], None],
    ) -> None:
        """Wait until the process has ended, as it was told to; with force, end it by signals. StillRunningError."""
        if comes(self.is_gone, patience.left_s):
            return
        if not is_forced:
            raise StillRunningError(
                connection, patience.timeout_s, "wait longer with --timeout, or end it with --force"
            )
        self._end(connection, note)

    def _end(self, connection: ClusterConnection, note: Callable[[str], None]) -> None:
        """End the process by signals, its supervisor first."""
        supervisor = self._supervisor()
        if supervisor is not None:
            # It ends the session in order, then by force, and does not start it again.
            note(f"telling its supervisor, process {supervisor.pid}, to end")
            supervisor.send(signal.SIGTERM)
        for number in (signal.SIGTERM, signal.SIGKILL):
            note(f"process {self.pid} does not end: sending {number.name}")
            self.send(number)
            if comes(self.is_gone, _FORCE_TIMEOUT_S):
                return
        raise StillRunningError(connection, _FORCE_TIMEOUT_S, "the kernel does not end it")

    def _supervisor(self) -> "LocalProcess | None":
        """Return the parent process, if it is one of our daemons; a process without a supervisor has another parent."""
        parent = parent_pid(self.pid)
        begun = start_ticks(parent)
        if not begun or not is_daemon(parent):
            return None
        return LocalProcess(parent, begun)


def comes(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for a condition, and return whether it became true in time."""
    clock, pause = SystemClock(), threading.Event()
    end_ms = clock.monotonic_ms() + timeout_s * 1000
    while not condition():
        if clock.monotonic_ms() >= end_ms:
            return False
        pause.wait(_LOOK_S)
    return True
