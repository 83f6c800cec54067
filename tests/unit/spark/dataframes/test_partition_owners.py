"""Owners of a DataFrame's partitions, after failures of one subtask and of all."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.spark.dataframes.dataframe_coordinator import PartitionOwners


def test_partitions_are_given_out_in_turns_and_leave_with_their_end() -> None:
    owners = PartitionOwners(2)
    assert not owners.is_announced
    owners.announce(5)
    assert owners.partitions_of(0) == (0, 2, 4)
    owners.ended(0, 2)
    assert owners.open_partitions == {0: 0, 4: 0, 1: 1, 3: 1}


def test_after_a_restore_readers_say_what_they_have() -> None:
    owners = PartitionOwners(3)
    owners.restored(7, was_announced=True)
    owners.opened(0, [4])
    owners.opened(2, [1, 3])
    assert owners.open_partitions == {4: 0, 1: 2, 3: 2}


def test_a_restore_from_before_the_announcement_begins_afresh() -> None:
    owners = PartitionOwners(2)
    owners.restored(7, was_announced=False)
    owners.opened(0, [])
    owners.announce(2)
    assert owners.open_partitions == {0: 0, 1: 1}


def test_a_subtask_that_starts_from_before_the_announcement_has_all_of_its_own_again() -> None:
    owners = PartitionOwners(2)
    owners.checkpoint_taken(1)
    owners.announce(4)
    owners.ended(0, 0)
    owners.checkpoint_taken(2)
    owners.subtask_reset(0, 1)
    owners.opened(0, [])
    assert owners.partitions_of(0) == (0, 2)
    owners.ended(0, 0)
    owners.subtask_reset(0, 2)
    owners.opened(0, [2])
    assert owners.partitions_of(0) == (2,)


SUBTASKS, PARTITIONS = 2, 5


class Ownership(RuleBasedStateMachine):
    """Readers as they should be, checkpoints that complete at once, failures of one and of all."""

    @initialize()
    def begin(self) -> None:
        self.owners = PartitionOwners(SUBTASKS)
        self.readers: list[set[int] | None] = [None] * SUBTASKS
        self.checkpoint: tuple[int, bool, list[set[int]]] | None = None
        self.next_id = 1

    @precondition(lambda self: not self.owners.is_announced)
    @rule()
    def announce(self) -> None:
        self.owners.announce(PARTITIONS)
        self.readers = [set(self.owners.partitions_of(index)) for index in range(SUBTASKS)]

    @rule(index=st.integers(0, SUBTASKS - 1))
    def end_one(self, index: int) -> None:
        mine = self.readers[index]
        if mine:
            self.owners.ended(index, mine.pop())

    @rule()
    def take_checkpoint(self) -> None:
        self.owners.checkpoint_taken(self.next_id)
        splits = [set(mine or ()) for mine in self.readers]
        self.checkpoint = (self.next_id, self.owners.is_announced, splits)
        self.next_id += 1

    @rule(index=st.integers(0, SUBTASKS - 1))
    def fail_one(self, index: int) -> None:
        restored = set[int]() if self.checkpoint is None else self.checkpoint[2][index]
        self.owners.subtask_reset(index, None if self.checkpoint is None else self.checkpoint[0])
        self.owners.opened(index, restored)
        if self.owners.is_announced:
            was_announced = self.checkpoint is not None and self.checkpoint[1]
            fresh = set(range(index, PARTITIONS, SUBTASKS))
            self.readers[index] = set(restored) if was_announced else fresh

    @rule()
    def fail_all(self) -> None:
        self.owners = PartitionOwners(SUBTASKS)
        self.readers = [None] * SUBTASKS
        if self.checkpoint is not None:
            checkpoint_id, was_announced, splits = self.checkpoint
            self.owners.restored(checkpoint_id, was_announced=was_announced)
            for index in range(SUBTASKS):
                self.owners.opened(index, splits[index])
            if was_announced:
                self.readers = [set(mine) for mine in splits]

    @invariant()
    def owners_know_what_readers_have(self) -> None:
        if hasattr(self, "owners") and self.owners.is_announced:
            assert [set(self.owners.partitions_of(index)) for index in range(SUBTASKS)] == [
                mine or set() for mine in self.readers
            ]


TestOwnership = Ownership.TestCase


def test_partitions_that_are_counted_from_another_number_go_to_subtasks_by_their_number() -> None:
    owners = PartitionOwners(3)
    owners.announce(4, 5)
    assert [owners.partitions_of(index) for index in range(3)] == [(6,), (7,), (5, 8)]
