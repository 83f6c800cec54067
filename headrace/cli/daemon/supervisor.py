"""Supervisor: keeps a session running in a daemon of its own, and starts it again whenever it ends by itself.

A session ends in order, with exit code 0, because somebody stops it: then the supervisor ends, too. After any other end
it waits, each time twice as long as before, and starts the session again; one that has run for a while counts as new.
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
from headrace.cli.daemon.messages import Report, Reporter, RunSession
from headrace.cli.logs import EXIT_FAILED
from headrace.core.clock import Clock, SystemClock

_LOG: Final = logging.getLogger(__name__)
SHORT_LIVES_MAX: Final = 10
"""Starts in a row that are tried before the supervisor gives up."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_STEADY_S: Final = 300.0


class RestartPauses:
    """Pauses before the next start: twice as long each time, and none any more after SHORT_LIVES_MAX short lives."""

    def __init__(self) -> None:
        self._count = 0

    def after(self, lived_s: float) -> float | None:
        """Return the pause after a session that lived this long, or None where it is not to be started again."""
        self._count = 1 if lived_s >= _STEADY_S else self._count + 1
        if self._count > SHORT_LIVES_MAX:
            return None
        return min(_FIRST_PAUSE_S * 2.0 ** (self._count - 1), _LONGEST_PAUSE_S)


class Supervisor:
    """Supervises one session with these settings; `run` in the main thread."""

    def __init__(
        self,
        session: RunSession,
        settings: Mapping[str, str],
        is_verbose: bool,
        *,
        pauses: RestartPauses | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._session: Final = msgspec.structs.replace(session, is_supervised=False)
        self._settings: Final = settings
        self._is_verbose: Final = is_verbose
        self._pauses: Final = pauses or RestartPauses()
        self._clock: Final = clock or SystemClock()
        self._daemon: DaemonProcess | None = None

    def run(self, reporter: Reporter) -> int:
        """Start the session, and again until it is stopped or fails too often; return the exit code.

        A first start that fails is told, and not repeated. SIGTERM ends the session in order.
        """
        take_back = end_in_order_when_terminated()
        try:
            return self._supervise(reporter)
        except (Terminated, KeyboardInterrupt):
            return 0
        finally:
            ignore_termination()
            if self._daemon is not None:
                self._daemon.terminate()
            take_back()

    def _supervise(self, reporter: Reporter) -> int:
        session = self._session
        while True:
            begun_ms = self._clock.monotonic_ms()
            try:
                reason = self._live(session, reporter)
            except DaemonFailedError as error:
                if reporter.is_open:
                    reporter.tell(Report(failure=error.lines))
                    return EXIT_FAILED
                reason = f"did not start: {error}"
            if reason is None:
                _LOG.warning("session '%s' was stopped: its supervisor ends", session.name)
                return 0
            pause_s = self._pauses.after((self._clock.monotonic_ms() - begun_ms) / 1000)
            if pause_s is None:
                _LOG.error(
                    "session '%s' %s; it is not started again after %d short lives in a row: mend the cause, and start "
                    "it with 'headrace cluster start --supervise'", session.name, reason, SHORT_LIVES_MAX,
                )  # fmt: skip
                return EXIT_FAILED
            _LOG.warning(
                "session '%s' %s; it is started again in %g s", session.name, reason, pause_s
            )
            threading.Event().wait(pause_s)
            # With high availability another driver may lead by now: then this one has started when it stands by.
            session = msgspec.structs.replace(session, is_standby=True)

    def _live(self, session: RunSession, reporter: Reporter) -> str | None:
        """Let the session live once, and return how it ended, or None where it was stopped. DaemonFailedError."""
        daemon = DaemonProcess(session, self._settings, is_verbose=self._is_verbose)
        self._daemon = daemon
        try:
            report = daemon.report()
        except DaemonFailedError:
            self._daemon = None
            raise
        reporter.tell(report)
        found = report.cluster
        what = f"stands by behind {found.leader}" if found.leader else f"runs at {found.address}"
        _LOG.warning(
            "session '%s' %s (process %d), its log is in %s", session.name, what, daemon.pid, daemon.log_folder
        )  # fmt: skip
        code = daemon.wait()
        self._daemon = None
        if code == 0:
            return None
        return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
