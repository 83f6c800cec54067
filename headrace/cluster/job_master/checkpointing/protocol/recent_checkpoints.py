"""RecentCheckpoints: decides whether the state of a late acknowledgement may be deleted. Pure.

Source: Flink CheckpointCoordinator.recentExpiredCheckpoints.
"""

from collections import deque
from typing import Final

EXPIRED_REMEMBERED: Final = 16
"""Of so many checkpoints that were given up it is known that answers to them are late, not wrong."""


class RecentCheckpoints:
    """Those that were given up, and those whose publication was begun, which a repeated answer must not spoil."""

    def __init__(self) -> None:
        self._given_up: deque[int] = deque(maxlen=EXPIRED_REMEMBERED)
        # All had answered, so that what comes is a repetition. Only those above the latest completed one.
        self._publication_begun: set[int] = set()

    def publication_begun(self, checkpoint_id: int) -> None:
        """Everybody has answered."""
        self._publication_begun.add(checkpoint_id)

    def completed(self, latest_completed_id: int) -> None:
        """The newest one that is published."""
        self._publication_begun = {
            each for each in self._publication_begun if each > latest_completed_id
        }

    def given_up(self, checkpoint_id: int) -> None:
        """It came to nothing."""
        if checkpoint_id not in self._publication_begun:
            self._given_up.append(checkpoint_id)

    def is_superfluous(self, checkpoint_id: int, latest_completed_id: int) -> bool:
        """Whether state that nobody waits for may go: a repeated answer must not delete what was published."""
        if checkpoint_id in self._publication_begun:
            return False
        return checkpoint_id > latest_completed_id or checkpoint_id in self._given_up
