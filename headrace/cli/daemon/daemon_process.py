"""DaemonProcess: starts a daemon and waits for its report; after a failed start nothing of it is left.

The daemon has its own process session, no terminal, and /dev/null as its input. It inherits the environment and working
directory of the command, except the clients' token and the address of a Spark Connect server, because a daemon hosts
Spark itself. Its settings are sent through a pipe, because they may hold secrets.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from headrace.cli.daemon.console_file import last_lines, open_console
from headrace.cli.daemon.messages import (
    Instructions,
    Report,
    RunJobCluster,
    RunProgram,
    RunSession,
)
from headrace.core.clock import Clock, SystemClock
from headrace.core.config import Settings
from headrace.core.errors import DECODE_ERRORS, ErrorDomain, HeadraceError
from headrace.core.process.log_files import LOG_DIR, named_log_folder, private_folder
from headrace.rest.home.connections import TOKEN_VARIABLE
from headrace.rest.home.home_folder import (
    headrace_home,
    writing_in_home,
)

START_TIMEOUT_S: Final = 600.0
"""Longest time for which a command waits for a daemon; the parts of a start have shorter bounds of their own."""
_REPORT_BYTES_MAX: Final = 1 << 20
_LOOK_S: Final = 0.2
_STOP_GRACE_S: Final = 20.0
_SHOWN_LINES: Final = 20
_MODULE: Final = "headrace.cli.daemon"
_OF_CLIENTS: Final = frozenset(
    {TOKEN_VARIABLE, "SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED"}
)
_left_pids: Final[set[int]] = set()
"""Children of this process that were left running and whose end is not known yet."""


class DaemonFailedError(HeadraceError):
    """Raised if a daemon has ended, or was ended, before it had started successfully. `lines` describe the reason.

    `exit_code` is set if the daemon ended by itself without a report, else None. `is_name_taken`: the start would
    succeed under another name.
    """

    domain, recoverable = ErrorDomain.EXTERNAL, False

    def __init__(
        self,
        lines: tuple[str, ...],
        exit_code: int | None = None,
        *,
        is_name_taken: bool = False,
    ) -> None:
        super().__init__("\n".join(lines))
        self.lines, self.exit_code, self.is_name_taken = lines, exit_code, is_name_taken


class DaemonProcess:
    """A daemon that was just started. Wait for its `report`.

    Then `leave` it running, or `end` it and delete its files.
    """

    def __init__(
        self,
        duty: RunProgram | RunSession | RunJobCluster,
        settings: Mapping[str, str],
        *,
        is_verbose: bool = False,
        clock: Clock | None = None,
    ) -> None:
        _reap_left()
        self._clock: Final = clock or SystemClock()
        self.log_folder: Final = log_folder_of(settings, self._clock)
        reading, writing = os.pipe2(os.O_CLOEXEC)
        self._report: int | None = reading
        try:
            self._process: Final = self._start(writing)
            try:
                instructions = Instructions(
                    duty, dict(settings), writing, str(self.log_folder), is_verbose
                )
                self._tell(instructions.to_json())
            except BaseException:
                self.terminate()
                raise
        except BaseException:
            self._forget()
            raise
        finally:
            os.close(writing)

    @property
    def pid(self) -> int:
        """Return the id of the daemon's process."""
        return self._process.pid

    def report(self, timeout_s: float = START_TIMEOUT_S) -> Report:
        """Wait for the daemon's report. DaemonFailedError, after which nothing of the daemon is left."""
        try:
            found = self._read_report(timeout_s)
        except BaseException:
            self.end()
            raise
        if found.failure:
            self.end()
            raise DaemonFailedError(found.failure, is_name_taken=found.is_name_taken)
        return found

    def leave(self) -> None:
        """Let the daemon run on by itself."""
        self._close_report()
        # Nobody waits for it here: Python would warn of a child that still runs.
        self._process.returncode = 0
        _left_pids.add(self._process.pid)

    def wait(self) -> int:
        """Wait for the daemon's end, and return its exit code; a negative number is the signal that ended it."""
        self._close_report()
        return self._process.wait()

    def end(self) -> None:
        """End the daemon, in order if possible, and remove its log folder."""
        self.terminate()
        self._forget()

    def terminate(self) -> None:
        """End the daemon, in order if possible, and keep its log. Does nothing if it has already ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_GRACE_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            with contextlib.suppress(ProcessLookupError):
                # Its children with it: it leads a group of its own.
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _start(self, writing: int) -> subprocess.Popen[bytes]:
        environment = {key: value for key, value in os.environ.items() if key not in _OF_CLIENTS}
        console = open_console(self.log_folder)
        try:
            return subprocess.Popen(
                # Not with modules of the folder in which the command is called, as `python -m` would.
                [sys.executable, "-P", "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=console,
                stderr=console,
                pass_fds=(writing,),
                start_new_session=True,
                env=environment,
            )
        finally:
            os.close(console)

    def _tell(self, instructions: bytes) -> None:
        assert self._process.stdin is not None
        # One that has ended already is found by its missing report.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(instructions)
            self._process.stdin.close()

    def _read_report(self, timeout_s: float) -> Report:
        descriptor = self._report
        assert descriptor is not None, "its report was heard"
        end_ms = self._clock.monotonic_ms() + timeout_s * 1000
        content = b""
        # `select.select` takes no descriptor from 1024 on, and its parent may have opened as many files.
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while not content.endswith(b"\n"):
            if self._clock.monotonic_ms() > end_ms:
                raise DaemonFailedError(
                    self._last_words(f"it did not start within {timeout_s:g} s")
                )
            if not poll.poll(_LOOK_S * 1000):
                continue
            piece = os.read(descriptor, _REPORT_BYTES_MAX)
            content += piece
            if not piece or len(content) > _REPORT_BYTES_MAX:
                reason = self._how_it_ended()
                raise DaemonFailedError(self._last_words(reason), self._process.returncode)
        try:
            return msgspec.json.decode(content, type=Report)
        except DECODE_ERRORS as error:
            raise DaemonFailedError(
                self._last_words(f"its report cannot be read: {error}")
            ) from error

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(_STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            return "it sent no report"
        if code < 0:
            name = signal.Signals(-code).name
            return f"it was killed by {name}" + (
                ", possibly because memory was short" if name == "SIGKILL" else ""
            )
        return f"it ended with code {code}"

    def _last_words(self, reason: str) -> tuple[str, ...]:
        said = last_lines(self.log_folder, _SHOWN_LINES)
        ending = "and printed nothing" if not said else "and last printed:"
        return (f"the daemon did not start: {reason}, {ending}", *(f"  {line}" for line in said))

    def _close_report(self) -> None:
        descriptor, self._report = self._report, None
        if descriptor is not None:
            os.close(descriptor)

    def _forget(self) -> None:
        self._close_report()
        shutil.rmtree(self.log_folder, ignore_errors=True)


def _reap_left() -> None:
    """Collect the exit codes of daemons that were left and have ended, so that none stays a zombie of this process."""
    for pid in tuple(_left_pids):
        try:
            has_ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:
            # Another thread was faster, or this process is a fork of the one that started it.
            has_ended = True
        if has_ended:
            _left_pids.discard(pid)


def is_daemon(pid: int) -> bool:
    """Return whether a process of this machine is a daemon of Headrace."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return _MODULE.encode() in words


def log_folder_of(settings: Mapping[str, str], clock: Clock) -> Path:
    """Make the log folder of a daemon: below `env.log.dir`, or `logs` in the user's folder of Headrace.

    Raises HomeFolderError, or OSError or ConfigurationError for `env.log.dir`.
    """
    configured = Settings(settings)
    if not configured.get_option(LOG_DIR):
        with writing_in_home():
            private_folder(headrace_home())
            folder = private_folder(headrace_home() / "logs")
            configured = configured.with_values({LOG_DIR.key: str(folder)})
    made = named_log_folder(configured, clock.now_ms())
    assert made is not None, "a folder is configured"
    return made
