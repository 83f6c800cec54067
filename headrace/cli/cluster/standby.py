"""Standby: a session of this machine that waits to lead, as `headrace cluster list` and its neighbours see it.

It serves nobody yet, so that it has no connection file. Its own file, for its owner alone, is
`<home>/standbys/<process>.json`, from its first look at the leader until it leads or ends.
"""

import contextlib
import logging
import os
from pathlib import Path
from typing import Final

import msgspec

from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.core.clock import SystemClock
from headrace.core.errors import DECODE_ERRORS
from headrace.core.process.log_files import private_folder
from headrace.core.process.process_start import start_ticks
from headrace.rest.client_errors import ConnectionFileError, HomeFolderError
from headrace.rest.connections import (
    headrace_home,
    read_private_file,
    write_private_file,
    writing_in_home,
)

_FILES_MAX: Final = 1_000
_LOG: Final = logging.getLogger(__name__)


class Standby(msgspec.Struct, frozen=True):
    """Content of the file. `leader` says who leads; `leader_address` is where, as far as that is known."""

    name: str
    pid: int
    start_ticks: int
    started: int
    leader: str
    leader_address: str = ""


class StandbyFile:
    """The file of this process, which stands by as `name`."""

    def __init__(self, name: str) -> None:
        self._name: Final = name
        self._started: Final = SystemClock().now_ms()
        self._file: Final = _folder() / f"{os.getpid()}.json"

    def write(self, leader: LeaderRecord) -> None:
        """Write that this process waits behind this leader. HomeFolderError."""
        pid = os.getpid()
        standby = Standby(
            self._name, pid, start_ticks(pid), self._started, leader.holder, leader.address
        )
        with writing_in_home():
            private_folder(headrace_home())
            private_folder(_folder())
            write_private_file(self._file, msgspec.json.encode(standby))

    def show(self, leader: LeaderRecord | None) -> None:
        """Write it, if that is possible, as only commands look at it; remove it where there is no leader."""
        if leader is None:
            self.remove()
            return
        try:
            self.write(leader)
        except HomeFolderError as error:
            _LOG.warning(
                "'headrace cluster list' does not show that '%s' stands by: %s", self._name, error
            )

    def remove(self) -> None:
        """Remove it, if it is there."""
        # Where home cannot be used, nothing was written.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self._file.unlink()


def live_standbys() -> list[Standby]:
    """Return the standbys of this machine; files of processes that have ended are removed."""
    found: list[Standby] = []
    for file in sorted(_folder().glob("[0-9]*.json"))[:_FILES_MAX]:
        try:
            standby = msgspec.json.decode(read_private_file(file), type=Standby)
        except (FileNotFoundError, ConnectionFileError, *DECODE_ERRORS):
            continue
        if start_ticks(standby.pid) != standby.start_ticks:
            file.unlink(missing_ok=True)
        else:
            found.append(standby)
    return found


def find_standby(name: str | None) -> Standby | None:
    """Return the standby of this name, if there is one."""
    return next((one for one in live_standbys() if one.name == name), None)


def _folder() -> Path:
    return headrace_home() / "standbys"
