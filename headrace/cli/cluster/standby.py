"""Standby: a session of this machine that waits to lead, as the `headrace cluster` commands see it.

A standby serves no clients yet, so it has no connection file. It has a file in `<home>/standbys`, from its first look
at the leader until it leads or ends.
"""

from typing import Final

from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.rest.home.process_files import ProcessEntry, ProcessFile, live_entries

_FOLDER: Final = "standbys"


class Standby(ProcessEntry, frozen=True):
    """Content of the file. `leader` names the leader; `leader_address` is its address, if known."""

    leader: str
    leader_address: str = ""


class StandbyFile:
    """File of this process, which stands by as `name`."""

    def __init__(self, name: str) -> None:
        self._file: Final = ProcessFile(_FOLDER, name)

    def show(self, leader: LeaderRecord | None) -> None:
        """Write that this process waits behind this leader, if that is possible.

        Remove the file if there is no leader.
        """
        file = self._file
        if leader is None:
            file.remove()
            return
        file.show(
            Standby(
                file.name,
                file.pid,
                file.start_ticks,
                file.started,
                leader.holder,
                leader.address,
            )
        )

    def remove(self) -> None:
        """Remove the file, if it exists."""
        self._file.remove()


def live_standbys() -> list[Standby]:
    """Return the standbys of this machine; files of processes that have ended are removed."""
    return live_entries(_FOLDER, Standby)


def find_standby(name: str | None) -> Standby | None:
    """Return the standby of this name, if there is one."""
    return next((one for one in live_standbys() if one.name == name), None)
