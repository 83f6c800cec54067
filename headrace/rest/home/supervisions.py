"""Supervision: a supervisor of this machine and its driver, as commands see them in `<home>/supervisors`.

While a driver is started again it has no connection file: this entry says then that the cluster comes back by itself.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from headrace.core.clock import SystemClock
from headrace.core.process.process_start import start_ticks
from headrace.rest.home.process_files import ProcessEntry, ProcessFile, live_entries

_FOLDER: Final = "supervisors"


class Supervision(ProcessEntry, frozen=True):
    """The work of a supervisor; `pid` is its own process, and `name` that of the cluster."""

    is_session: bool
    """Whether it supervises a session; else an application."""
    log_folder: str = ""
    keeps_jobs: bool = False
    """Whether jobs go on under the next driver, as with high availability."""
    driver_pid: int = 0
    """Process of the driver that runs, or starts; 0 between two."""
    driver_start_ticks: int = 0
    ended: int = 0
    """Epoch milliseconds at which the driver before ended; 0 once the next one has started."""

    @property
    def kind(self) -> str:
        """The word for its cluster."""
        return "session" if self.is_session else "application"

    @property
    def is_restarting(self) -> bool:
        """Whether its driver is gone, and the next one has not started yet."""
        return bool(self.ended) or start_ticks(self.driver_pid) != self.driver_start_ticks


class SupervisionFile:
    """The file of this process, which supervises the driver of the cluster `name`."""

    def __init__(
        self, name: str, *, is_session: bool, log_folder: str, keeps_jobs: bool = False
    ) -> None:
        self._file: Final = ProcessFile(_FOLDER, name)
        file = self._file
        self._entry = Supervision(
            name, file.pid, file.start_ticks, file.started, is_session, log_folder, keeps_jobs
        )

    def driver_starts(self, pid: int) -> None:
        """Show the process that starts."""
        self._show(driver_pid=pid, driver_start_ticks=start_ticks(pid))

    def driver_runs(self) -> None:
        """Show that it has started."""
        self._show(ended=0)

    def driver_ended(self) -> None:
        """Show that it is gone; the cluster is away since the first of several that fail in a row."""
        since = self._entry.ended or SystemClock().now_ms()
        self._show(driver_pid=0, driver_start_ticks=0, ended=since)

    def remove(self) -> None:
        """Remove it, if it is there."""
        self._file.remove()

    def _show(self, **changes: int) -> None:
        self._entry = msgspec.structs.replace(self._entry, **changes)
        self._file.show(self._entry)


def live_supervisions() -> list[Supervision]:
    """Return what the supervisors of this machine do; files of those that have ended are removed."""
    return live_entries(_FOLDER, Supervision)


def restarting(shown_pids: Collection[int] = ()) -> list[Supervision]:
    """Return the supervisions whose driver starts again, unless it is one of the processes that are shown anyway."""
    return [
        one for one in live_supervisions() if one.is_restarting and one.driver_pid not in shown_pids
    ]


def supervision_of(driver_pid: int, driver_start_ticks: int) -> Supervision | None:
    """Return the supervision of this driver, if there is one: not of another machine's that has the same number."""
    driver = (driver_pid, driver_start_ticks)
    found = (
        one for one in live_supervisions() if (one.driver_pid, one.driver_start_ticks) == driver
    )
    return next(found, None) if all(driver) else None
