"""Supervision: describes a supervisor on this machine and its driver to commands, in `<home>/supervisors`.

While a driver restarts it has no connection file: this entry then shows that the cluster will be back.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from headrace.core.clock import SystemClock
from headrace.core.process.process_start import start_ticks
from headrace.rest.home.process_files import ProcessEntry, ProcessFile, live_entries

_FOLDER: Final = "supervisors"


class Supervision(ProcessEntry, frozen=True):
    """Entry of a supervisor; `pid` is the supervisor's process, and `name` that of the cluster."""

    is_session: bool
    """True if it supervises a session; else it supervises an application."""
    log_folder: str = ""
    keeps_jobs: bool = False
    """True if jobs continue under the next driver, as with high availability."""
    driver_pid: int = 0
    """Process of the running or starting driver; 0 between two drivers."""
    driver_start_ticks: int = 0
    ended: int = 0
    """Time in epoch ms at which the last driver ended; 0 once the next one has started."""

    @property
    def kind(self) -> str:
        """Return the word for its kind of cluster."""
        return "session" if self.is_session else "application"

    @property
    def is_restarting(self) -> bool:
        """Return whether its driver is gone, and the next one has not started yet."""
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
        """Record the process of a starting driver."""
        self._show(driver_pid=pid, driver_start_ticks=start_ticks(pid))

    def driver_runs(self) -> None:
        """Record that the driver has started."""
        self._show(ended=0)

    def driver_ended(self) -> None:
        """Record that the driver is gone; after several failures in a row the time of the first one counts."""
        since = self._entry.ended or SystemClock().now_ms()
        self._show(driver_pid=0, driver_start_ticks=0, ended=since)

    def remove(self) -> None:
        """Remove the file, if it exists."""
        self._file.remove()

    def _show(self, **changes: int) -> None:
        self._entry = msgspec.structs.replace(self._entry, **changes)
        self._file.show(self._entry)


def live_supervisions() -> list[Supervision]:
    """Return the entries of this machine's supervisors; files of ended ones are removed."""
    return live_entries(_FOLDER, Supervision)


def restarting(shown_pids: Collection[int] = ()) -> list[Supervision]:
    """Return the supervisions whose driver is restarting, unless its process is shown already."""
    return [
        one for one in live_supervisions() if one.is_restarting and one.driver_pid not in shown_pids
    ]


def supervision_of(driver_pid: int, driver_start_ticks: int) -> Supervision | None:
    """Return the supervision of this driver, or None; the start distinguishes it from another process with its pid."""
    driver = (driver_pid, driver_start_ticks)
    found = (
        one for one in live_supervisions() if (one.driver_pid, one.driver_start_ticks) == driver
    )
    return next(found, None) if all(driver) else None
