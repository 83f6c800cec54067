"""Which files several checkpoints refer to, and when nobody does any more. Pure.

Source: Flink SharedStateRegistryImpl.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.checkpoint.errors import CheckpointCorruptedError
from headrace.checkpoint.handles import StateFile


@dataclass
class _Entry:
    file: StateFile
    created_by: int
    last_used_by: int


class SharedFiles:
    """Remembers for each shared file which checkpoint came with it first, and the highest that refers to it."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._highest_not_claimed = 0

    def register(self, checkpoint_id: int, files: Iterable[StateFile]) -> None:
        """Remember the shared ones of `files` for a checkpoint, whether it completes or not.

        CheckpointCorruptedError where one name stands for two contents.
        """
        for file in files:
            if not (file.is_shared and file.uri):
                continue
            entry = self._entries.get(file.uri)
            if entry is None:
                self._entries[file.uri] = _Entry(file, checkpoint_id, checkpoint_id)
            elif entry.file.digest != file.digest:
                raise CheckpointCorruptedError(file.uri, "two different files have this name")
            else:
                entry.last_used_by = max(entry.last_used_by, checkpoint_id)

    def restored(self, checkpoint_id: int, *, is_claimed: bool) -> None:
        """A checkpoint was restored; unless it was claimed, no file that came with it or before is ever deleted."""
        if not is_claimed:
            self._highest_not_claimed = max(self._highest_not_claimed, checkpoint_id)

    def unused_below(self, lowest_retained_id: int) -> list[str]:
        """Forget what only lower checkpoints refer to; return the files that are to be deleted."""
        unused = [
            uri for uri, one in self._entries.items() if one.last_used_by < lowest_retained_id
        ]
        entries = [(uri, self._entries.pop(uri)) for uri in unused]
        return sorted(uri for uri, one in entries if one.created_by > self._highest_not_claimed)

    def forget_all(self) -> list[str]:
        """Forget everything, at the end of a job; return the files that are to be deleted."""
        return self.unused_below(self._highest_used + 1)

    @property
    def _highest_used(self) -> int:
        return max((one.last_used_by for one in self._entries.values()), default=0)
