"""PartitionOwners: which subtask has which partition of a DataFrame, and which partitions have ended. Pure.

afresh ── announce(n): i goes to subtask i modulo parallelism ──► announced ── ended ──► …
restored ── each reader says what its state holds ───────────────────▲
"""

from collections.abc import Iterable, Mapping


class PartitionOwners:
    """Counts the partitions of one source; subtasks by their index."""

    def __init__(self, parallelism: int) -> None:
        self._parallelism = parallelism
        self._open: dict[int, set[int]] = {index: set() for index in range(parallelism)}
        # What each had when partitions were announced: a reader that starts before that has them all to read.
        self._at_announcement: dict[int, frozenset[int]] = {}
        # The oldest checkpoint in which readers' states hold their partitions; None before there is one.
        self._first_checkpoint_id: int | None = None
        self._starts_from_state: set[int] = set()
        self.is_announced = False

    @property
    def open_partitions(self) -> Mapping[int, int]:
        """Subtask by partition, of those that have not ended."""
        return {each: index for index, mine in self._open.items() for each in sorted(mine)}

    def partitions_of(self, subtask_index: int) -> tuple[int, ...]:
        """Partitions of a subtask that have not ended, ascending."""
        return tuple(sorted(self._open[subtask_index]))

    def announce(self, partition_count: int) -> None:
        """The DataFrame is planned: give its partitions out."""
        assert not self.is_announced
        self.is_announced = True
        for index in range(self._parallelism):
            mine = range(index, partition_count, self._parallelism)
            self._open[index] = set(mine)
            self._at_announcement[index] = frozenset(mine)

    def checkpoint_taken(self, checkpoint_id: int) -> None:
        """Readers hear of partitions that are announced later only after their part of it."""
        if self.is_announced and self._first_checkpoint_id is None:
            self._first_checkpoint_id = checkpoint_id

    def restored(self, checkpoint_id: int, *, was_announced: bool) -> None:
        """All subtasks start from a checkpoint; where partitions were announced, readers say which they have."""
        if was_announced:
            self.is_announced = True
            self._first_checkpoint_id = checkpoint_id
            self._starts_from_state = set(range(self._parallelism))

    def subtask_reset(self, subtask_index: int, checkpoint_id: int | None) -> None:
        """One subtask starts from a checkpoint, or afresh, while the others go on."""
        first = self._first_checkpoint_id
        if first is not None and checkpoint_id is not None and checkpoint_id >= first:
            self._starts_from_state.add(subtask_index)
        else:
            self._starts_from_state.discard(subtask_index)

    def opened(self, subtask_index: int, partitions: Iterable[int]) -> None:
        """A reader opens, with these partitions in the state that it starts from."""
        if not self.is_announced:
            return
        if subtask_index in self._starts_from_state:
            self._open[subtask_index] = set(partitions)
        else:
            self._open[subtask_index] = set(self._at_announcement[subtask_index])

    def ended(self, subtask_index: int, partition: int) -> None:
        """A subtask has emitted all rows of a partition."""
        self._open[subtask_index].discard(partition)
