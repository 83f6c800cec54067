"""WorkerShortage: the time for which workers that are needed have had no place, and whether people were told. Pure.

Times are monotonic milliseconds.
"""

from dataclasses import dataclass
from typing import Final

_PATIENCE_MS: Final = 10_000.0
"""Time for which workers that are needed may have no place before people are told."""


@dataclass
class WorkerShortage:
    """A shortage ends when every worker that is needed has a place; people are told once of each."""

    _since_ms: float | None = None
    _is_told: bool = False

    def is_to_be_told(self, missing_count: int, monotonic_ms: float) -> bool:
        """Note how many workers have no place; return whether people are to be told now."""
        if not missing_count:
            self._since_ms, self._is_told = None, False
            return False
        if self._since_ms is None:
            self._since_ms = monotonic_ms
        if self._is_told or monotonic_ms - self._since_ms < _PATIENCE_MS:
            return False
        self._is_told = True
        return True

    @property
    def next_check_ms(self) -> float | None:
        """Return the time at which people are to be told; None where there is no shortage, or they were."""
        if self._since_ms is None or self._is_told:
            return None
        return self._since_ms + _PATIENCE_MS
