"""Supervisor: keeps a session or an application running in a daemon, and restarts it whenever its driver ends.

A session that is stopped ends in order, with exit code 0. An application ends in order when its main has ended, with
the exit code of main. Then the supervisor ends, too. After any other end the supervisor waits, each time twice as long
as before, and restarts it; after a long enough run the pauses begin anew.
"""

import logging
import threading
from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.api.client.program_end import (
    Terminated,
    end_in_order_when_terminated,
    ignore_termination,
)
from headrace.cli.daemon.daemon_process import DaemonFailedError, DaemonProcess
from headrace.cli.daemon.messages import Report, Reporter, RunProgram, RunSession
from headrace.cli.logs import EXIT_FAILED
from headrace.cluster.high_availability.lease import leader_at
from headrace.cluster.high_availability.options import is_highly_available
from headrace.core.clock import Clock, SystemClock
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.rest.home.supervisions import SupervisionFile
from headrace.spark.application import EXIT_LEFT

_LOG: Final = logging.getLogger(__name__)
SHORT_LIVES_MAX: Final = 10
"""Number of short runs in a row after which the supervisor gives up."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_STEADY_S: Final = 300.0


class RestartPauses:
    """Pauses before the next start: each twice as long as the last; None after SHORT_LIVES_MAX short runs."""

    def __init__(self) -> None:
        self._count = 0

    def after(self, lived_s: float) -> float | None:
        """Return the pause after a run of this length, or None if it should not be restarted."""
        self._count = 1 if lived_s >= _STEADY_S else self._count + 1
        if self._count > SHORT_LIVES_MAX:
            return None
        return min(_FIRST_PAUSE_S * 2.0 ** (self._count - 1), _LONGEST_PAUSE_S)


class Supervisor:
    """Supervises one session, or the driver of one application, with these settings; `run` in the main thread."""

    def __init__(
        self,
        duty: RunSession | RunProgram,
        settings: Mapping[str, str],
        is_verbose: bool,
        *,
        log_folder: str = "",
        pauses: RestartPauses | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`log_folder`: the folder where this process logs why it restarts the driver."""
        self._duty: Final = msgspec.structs.replace(duty, is_supervised=False)
        is_session = isinstance(duty, RunSession)
        self._what: Final = f"{'session' if is_session else 'application'} '{duty.name}'"
        self._file: Final = SupervisionFile(
            duty.name,
            is_session=is_session,
            log_folder=log_folder,
            keeps_jobs=is_highly_available(Settings(settings)),
        )
        self._settings: Final = settings
        self._is_verbose: Final = is_verbose
        self._pauses: Final = pauses or RestartPauses()
        self._clock: Final = clock or SystemClock()
        self._daemon: DaemonProcess | None = None

    def run(self, reporter: Reporter) -> int:
        """Start the driver, and restart it until it ends in order or fails too often; return the exit code.

        A first start that fails is reported, and not repeated. SIGTERM ends the driver in order.
        """
        take_back = end_in_order_when_terminated(lambda: "the driver ends, too")
        try:
            return self._supervise(reporter)
        except (Terminated, KeyboardInterrupt):
            return 0
        finally:
            ignore_termination()
            if self._daemon is not None:
                self._daemon.terminate()
            self._file.remove()
            take_back()

    def _supervise(self, reporter: Reporter) -> int:
        while True:
            # With high availability another driver may lead by now: then this one has started when it stands by.
            is_again = not reporter.is_open
            duty = msgspec.structs.replace(self._duty, is_standby=self._duty.is_standby or is_again)
            begun_ms = self._clock.monotonic_ms()
            try:
                code = self._live(duty, reporter)
                reason = _how_it_ended(code)
            except DaemonFailedError as error:
                reason = f"did not start: {error}"
                if reporter.is_open and not self._died(error):
                    reporter.tell(Report(failure=error.lines, is_name_taken=error.is_name_taken))
                    return EXIT_FAILED
            else:
                if not self._goes_on(code):
                    _LOG.warning("%s %s: its supervisor ends", self._what, reason)
                    return code
            pause_s = self._pauses.after((self._clock.monotonic_ms() - begun_ms) / 1000)
            if pause_s is None:
                _LOG.error(
                    "%s %s; it is not restarted after %d short runs in a row: fix the cause, then start it again "
                    "with --supervise", self._what, reason, SHORT_LIVES_MAX,
                )  # fmt: skip
                if reporter.is_open:
                    reporter.tell(Report(failure=(f"{self._what} {reason}",)))
                return EXIT_FAILED
            self._file.driver_ended()
            _LOG.warning("%s %s; restarting it in %g s", self._what, reason, pause_s)
            threading.Event().wait(pause_s)

    def _died(self, error: DaemonFailedError) -> bool:
        """Return whether the driver of an application died before its main ended and before it took a job."""
        code = error.exit_code
        return isinstance(self._duty, RunProgram) and code is not None and self._goes_on(code)

    def _goes_on(self, code: int) -> bool:
        """Return whether the driver must be restarted after it ended with this code."""
        if isinstance(self._duty, RunSession):
            return code != 0
        # All other codes are those of main.
        return code < 0 or code == EXIT_LEFT

    def _live(self, duty: RunSession | RunProgram, reporter: Reporter) -> int:
        """Run the driver once, and return the exit code; a negative number is a signal. DaemonFailedError."""
        try:
            daemon = DaemonProcess(duty, self._settings, is_verbose=self._is_verbose)
        except (HeadraceError, OSError) as error:
            # No log folder or no process can be made now: a full disk, or too many processes, may pass.
            raise DaemonFailedError((str(error),)) from error
        self._daemon = daemon
        self._file.driver_starts(daemon.pid)
        try:
            report = daemon.report()
        except DaemonFailedError:
            self._daemon = None
            raise
        reporter.tell(report)
        self._file.driver_runs()
        found = report.cluster
        what = f"runs at {found.address}"
        if found.leader:
            what = f"stands by behind {leader_at(found.leader, found.address)}"
        _LOG.warning(
            "%s %s (process %d), its log is in %s", self._what, what, daemon.pid, daemon.log_folder
        )
        code = daemon.wait()
        self._daemon = None
        return code


def _how_it_ended(code: int) -> str:
    if code < 0:
        return f"was killed by signal {-code}"
    return f"ended with code {code}" if code else "has ended in order"
