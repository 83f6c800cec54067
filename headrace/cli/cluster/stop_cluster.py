"""`headrace cluster stop`: ends a cluster over REST, and its process by signals where that does not help."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import click

from headrace.cli.cluster.cluster_argument import CLUSTER_NAME, choose_cluster
from headrace.cli.cluster.standby import Standby, find_standby
from headrace.cli.daemon.daemon_process import is_daemon
from headrace.cli.jobs.cluster_command import ClusterCommand, ClusterSession
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import ErrorDomain
from headrace.core.process.process_start import parent_pid, start_ticks
from headrace.core.security.tls import is_loopback
from headrace.rest.client import CLIENT_TIMEOUT, RETRY_MAX_ATTEMPTS, RestClient
from headrace.rest.client_errors import ClusterEndedError, RestError, RestUnreachableError
from headrace.rest.connections import ClusterConnection, has_ended

_TIMEOUT_S: Final = 60.0
_FORCE_TIMEOUT_S: Final = 10.0
_LOOK_S: Final = 0.1
_HELP: Final = """\
Stop a cluster: its jobs are cancelled, and their checkpoints and savepoints stay.

The command waits until the process has ended. To go on later with the jobs of a session, stop each with a savepoint
before: headrace stop JOB_ID.

\b
Try it:
  headrace cluster stop                       the only cluster of this machine
  headrace cluster stop nightly
  headrace cluster stop nightly --force       and end its process where it does not end by itself
"""


class StillRunningError(RestError):
    """A cluster that was told to end has not done so in time."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, connection: ClusterConnection, waited_s: float, hint: str) -> None:
        process = f" (process {connection.pid})" if connection.pid else ""
        super().__init__(
            f"the cluster at {connection.address}{process} still runs after {waited_s:g} s: {hint}"
        )
        self.connection = connection


@click.command("stop", cls=ClusterCommand, help=_HELP)
@click.option("--force", is_flag=True, help="End the process by signals where it does not end.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=_TIMEOUT_S,
    show_default=True,
    help="Seconds to wait for its end.",
)
@click.argument("name", metavar="[NAME]", type=CLUSTER_NAME, required=False)
@click.pass_obj
def stop_cluster(session: ClusterSession, force: bool, timeout_s: float, name: str | None) -> int:
    """Stop a cluster; the help text is `_HELP`."""
    standby = None if name is None else find_standby(name)
    if standby is not None:
        return _stop_standby(session, standby, timeout_s, is_forced=force)
    choose_cluster(session, name)
    connection = session.found.connection
    process = _LocalProcess.of(connection)
    _ask(session, is_forced=force and process is not None)
    is_gone = _is_unreachable(session) if process is None else process.is_gone
    if not _comes(is_gone, timeout_s):
        if process is None:
            raise StillRunningError(connection, timeout_s, "look at it on its own machine")
        if not force:
            raise StillRunningError(connection, timeout_s, "wait longer, or end it with --force")
        _end(process, connection, session)
    session.answer({"name": connection.name, "address": connection.address})
    session.say(f"Cluster {connection.name or connection.address} has ended.")
    return 0


def _stop_standby(
    session: ClusterSession, standby: Standby, timeout_s: float, *, is_forced: bool
) -> int:
    """End a standby, which serves nobody and hears signals alone."""
    process = _LocalProcess(standby.pid, standby.start_ticks)
    place = ClusterConnection(standby.leader_address, pid=standby.pid, name=standby.name)
    process.send(signal.SIGTERM)
    if not _comes(process.is_gone, timeout_s):
        if not is_forced:
            raise StillRunningError(place, timeout_s, "wait longer, or end it with --force")
        _end(process, place, session)
    session.answer({"name": standby.name, "address": ""})
    session.say(f"Standby {standby.name} has ended.")
    return 0


class _LocalProcess:
    """The process of a cluster of this machine, told from a later one with its number by the start of both."""

    def __init__(self, pid: int, started: int) -> None:
        self.pid: Final = pid
        self._started: Final = started

    @classmethod
    def of(cls, connection: ClusterConnection) -> "_LocalProcess | None":
        """Return it, or None for a cluster elsewhere, and where nobody knows which process it is."""
        host = urlsplit(connection.address).hostname or ""
        if connection.pid <= 0 or not connection.start_ticks or not is_loopback(host):
            return None
        return cls(connection.pid, connection.start_ticks)

    def is_gone(self) -> bool:
        """Return whether it has ended."""
        return start_ticks(self.pid) != self._started

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens where it has ended."""
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                # Of the process that is open here, whoever has its number a moment later.
                if not self.is_gone():
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


def _ask(session: ClusterSession, *, is_forced: bool) -> None:
    """Tell the cluster to end. RestError, unless it is ended by force where it does not listen."""
    try:
        client = _impatient_client(session) if is_forced else session.client
        client.delete("/cluster")
    except ClusterEndedError:
        return
    except RestUnreachableError as error:
        if not is_forced and not has_ended(session.found):
            raise
        session.note(str(error))


def _impatient_client(session: ClusterSession) -> RestClient:
    settings = {RETRY_MAX_ATTEMPTS.key: "1", CLIENT_TIMEOUT.key: "5 s", **session.definitions}
    return RestClient.of(session.found, settings=Settings(settings))


def _is_unreachable(session: ClusterSession) -> Callable[[], bool]:
    def is_gone() -> bool:
        try:
            session.impatient_client.get("/config")
        except RestUnreachableError:
            return True
        except RestError:
            return False
        return False

    return is_gone


def _end(process: _LocalProcess, connection: ClusterConnection, session: ClusterSession) -> None:
    supervisor = _supervisor_of(process)
    if supervisor is not None:
        # It ends the session in order, then by force, and does not start it again.
        session.note(f"its supervisor, process {supervisor.pid}, is told to end")
        supervisor.send(signal.SIGTERM)
    for number in (signal.SIGTERM, signal.SIGKILL):
        session.note(f"process {process.pid} does not end: {number.name}")
        process.send(number)
        if _comes(process.is_gone, _FORCE_TIMEOUT_S):
            return
    raise StillRunningError(connection, _FORCE_TIMEOUT_S, "the kernel does not end it")


def _supervisor_of(process: _LocalProcess) -> _LocalProcess | None:
    """Return the parent of a process, if that is a daemon of ours: those that nobody supervises have left theirs."""
    parent = parent_pid(process.pid)
    begun = start_ticks(parent)
    if not begun or not is_daemon(parent):
        return None
    return _LocalProcess(parent, begun)


def _comes(condition: Callable[[], bool], timeout_s: float) -> bool:
    clock, pause = SystemClock(), threading.Event()
    end_ms = clock.monotonic_ms() + timeout_s * 1000
    while not condition():
        if clock.monotonic_ms() >= end_ms:
            return False
        pause.wait(_LOOK_S)
    return True
