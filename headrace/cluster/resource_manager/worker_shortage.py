"""WorkerShortage: decides when users are told that needed workers have had no place for too long. Pure.

Times are monotonic milliseconds.
"""

from dataclasses import dataclass
from typing import Final

_PATIENCE_MS: Final = 10_000.0
"""Time in ms for which needed workers may have no place before users are told."""


@dataclass
class WorkerShortage:
    """A shortage ends when every needed worker has a place; users are told once of each shortage."""

    _since_ms: float | None = None
    _is_told: bool = False

    def is_to_be_told(self, missing_count: int, monotonic_ms: float) -> bool:
        """Record the number of workers without a place; return whether users must be told now."""
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
        """Return the time at which users must be told; None if there is no shortage, or they were told."""
        if self._since_ms is None or self._is_told:
            return None
        return self._since_ms + _PATIENCE_MS
