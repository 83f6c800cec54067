"""HeldDeletions: deletions that wait until nobody reads the checkpoint any more.

They are looked at again whenever another deletion comes, as each new checkpoint brings one. What a checkpoint shares
with others waits with it, though a later one be the last to refer to it.
"""

import dataclasses
import logging
from typing import Final

from headrace.checkpoint.completed_store import Deletion
from headrace.checkpoint.file_systems import child_uri, remove_file
from headrace.checkpoint.leases import live_leases
from headrace.checkpoint.metadata_format import METADATA_NAME
from headrace.core.clock import Clock

_LOG: Final = logging.getLogger(__name__)
HELD_MAX: Final = 64
"""Checkpoints that wait for readers: of more, the oldest goes under its reader, for the storage has an end."""


class HeldDeletions:
    """One thread at a time; deletions come in the order in which their checkpoints were given up."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: list[Deletion] = []

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders of the checkpoints that wait."""
        return tuple(one.folder_uri for one in self._held if one.folder_uri)

    def admit(self, deletion: Deletion) -> list[Deletion]:
        """Return what may be deleted now, of this one and of those that wait; metadata of it are gone already."""
        waiting = [*self._held, deletion]
        leased = [one for one in waiting if self._is_read(one)]
        for one in leased[:-HELD_MAX]:
            _LOG.warning("%s goes under its reader: more than %d wait", one.folder_uri, HELD_MAX)
        leased = leased[-HELD_MAX:]
        kept = {uri for one in leased for uri in one.shared_uris}
        self._held = []
        admitted: list[Deletion] = []
        for one in waiting:
            is_leased = any(one is other for other in leased)
            later = tuple(uri for uri in one.file_uris if is_leased or uri in kept)
            now = tuple(uri for uri in one.file_uris if uri not in later)
            folder = one.folder_uri if is_leased else ""
            if later or folder:
                held = dataclasses.replace(one, folder_uri=folder, file_uris=later)
                self._held.append(held)
            freed = dataclasses.replace(
                one, folder_uri="" if folder else one.folder_uri, file_uris=now
            )
            if not freed.is_empty:
                admitted.append(freed)
        return admitted

    def _is_read(self, deletion: Deletion) -> bool:
        folder = deletion.folder_uri
        if not folder:
            return False
        try:
            if self._is_leased(folder):
                return True
            # From here on nobody begins to read it; who has begun in this very moment has put a lease before.
            remove_file(child_uri(folder, METADATA_NAME))
            return self._is_leased(folder)
        except Exception as error:  # others go on, and this one is looked at again
            _LOG.warning(
                "whether somebody reads %s is not known, so it is deleted later: %s", folder, error
            )
            return True

    def _is_leased(self, folder: str) -> bool:
        leases = live_leases(folder, self._clock.now_ms())
        if leases and folder not in self.folders:
            _LOG.info("%s is deleted later: %s reads it", folder, leases[0].holder)
        return bool(leases)
