"""SplitAssignmentTracker: which splits were given away since which checkpoint. Pure.

    assigned ──► open ── checkpoint n is taken ──► under n ── n is published ──► forgotten: the reader's state has it
                   └──────── the reader is reset to c ──────────┴── (n > c) ──► back to the enumerator

Source: Flink SplitAssignmentTracker.
"""

from collections.abc import Sequence

from headrace.functions.split_enumerator import SourceSplit


class SplitAssignmentTracker:
    """Remembers splits, with the position at which they were given away, until a published checkpoint has them."""

    def __init__(self) -> None:
        self._open: dict[int, list[SourceSplit]] = {}
        self._by_checkpoint: dict[int, dict[int, list[SourceSplit]]] = {}

    def assigned(self, subtask_index: int, splits: Sequence[SourceSplit]) -> None:
        """The enumerator's next state will not hold these any more."""
        self._open.setdefault(subtask_index, []).extend(splits)

    def checkpoint_taken(self, checkpoint_id: int) -> None:
        """The enumerator's state was taken: what was assigned before is in the readers' part of the checkpoint."""
        self._by_checkpoint[checkpoint_id], self._open = self._open, {}

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """No subtask will be reset to anything older."""
        for older in [one for one in self._by_checkpoint if one <= checkpoint_id]:
            del self._by_checkpoint[older]

    def take_back(self, subtask_index: int, restored_id: int | None) -> list[SourceSplit]:
        """Forget and return what a subtask was given and does not have once it is reset to `restored_id`.

        None is the beginning of the job. The splits come in the order in which they were assigned.
        """
        after = 0 if restored_id is None else restored_id
        returned: list[SourceSplit] = []
        for checkpoint_id in sorted(one for one in self._by_checkpoint if one > after):
            returned += self._by_checkpoint[checkpoint_id].pop(subtask_index, [])
        return returned + self._open.pop(subtask_index, [])
