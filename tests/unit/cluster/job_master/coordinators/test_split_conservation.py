"""Each split has one owner, and each row is published once, whatever fails and whenever a checkpoint is taken."""

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.functions.source import (
    AddSplits,
    RequestSplit,
    SourceSplit,
    decode_split,
)
from tests.unit.cluster.job_master.source_world import World

SPLIT_COUNT, ROW_COUNT, SUBTASK_COUNT = 4, 2, 2


class Reader:
    """A reader as it should be: its splits with positions, its rows since the last published checkpoint."""

    def __init__(self, splits: Sequence[SourceSplit]) -> None:
        self.positions = {one.split_id: int(one.content) for one in splits}
        self.rows: list[tuple[str, int]] = []
        self.inbox: list[Any] = []  # AddSplits, NoMoreSplits, and checkpoint ids: triggers
        self.held: list[Any] = []  # events behind a closed gate
        self.gated_by: int | None = None
        self.snapshots: dict[int, tuple[list[SourceSplit], int]] = {}


class SplitConservation(RuleBasedStateMachine):
    """Requests, reads, checkpoints that complete or abort, failures of one reader and of all, in any order."""

    @initialize()
    def begin(self) -> None:
        self.world = World(SPLIT_COUNT, SUBTASK_COUNT, is_patient=True)
        self.world.coordinator.start()
        self.committed: list[tuple[str, int]] = []
        self.next_id = 1
        self.pending: tuple[int, bytes, set[int]] | None = None
        self.completed: tuple[int, bytes, list[list[SourceSplit]]] | None = None
        self.readers: list[Reader] = []
        for index in range(SUBTASK_COUNT):
            self.readers.append(Reader([]))
            self.world.run_reader(index, asks=False)

    def distribute(self) -> None:
        for index, event in self.world.take_sent():
            reader = self.readers[index]
            (reader.inbox if reader.gated_by is None else reader.held).append(event)

    @rule(index=st.integers(0, SUBTASK_COUNT - 1))
    def request(self, index: int) -> None:
        self.world.tell(index, RequestSplit())
        self.distribute()

    @rule(index=st.integers(0, SUBTASK_COUNT - 1), count=st.integers(1, 4))
    def deliver(self, index: int, count: int) -> None:
        reader = self.readers[index]
        for _ in range(min(count, len(reader.inbox))):
            match reader.inbox.pop(0):
                case AddSplits(splits):
                    for one in splits:
                        assert one.split_id not in reader.positions
                        reader.positions[one.split_id] = int(one.content)
                case int(checkpoint_id):
                    self.pass_barrier(index, checkpoint_id)

    def pass_barrier(self, index: int, checkpoint_id: int) -> None:
        reader = self.readers[index]
        splits = [SourceSplit(key, b"%d" % at) for key, at in reader.positions.items()]
        reader.snapshots[checkpoint_id] = (splits, len(reader.rows))
        assert self.pending is not None
        self.pending[2].discard(index)
        self.open_gate(reader)

    @rule(index=st.integers(0, SUBTASK_COUNT - 1), number=st.integers(0, SPLIT_COUNT - 1))
    def read(self, index: int, number: int) -> None:
        reader, name = self.readers[index], f"split-{number}"
        position = reader.positions.get(name)
        if position is not None and position < ROW_COUNT:
            reader.rows.append((name, position))
            reader.positions[name] = position + 1

    @precondition(lambda self: self.pending is None)
    @rule()
    def begin_checkpoint(self) -> None:
        checkpoint_id, self.next_id = self.next_id, self.next_id + 1
        state = self.world.coordinator.checkpoint(checkpoint_id)
        self.pending = (checkpoint_id, state, set(range(SUBTASK_COUNT)))
        for reader in self.readers:
            reader.gated_by = checkpoint_id

    @rule(index=st.integers(0, SUBTASK_COUNT - 1))
    def send_trigger(self, index: int) -> None:
        reader = self.readers[index]
        if self.pending is not None and reader.gated_by == self.pending[0]:
            checkpoint_id = self.pending[0]
            if checkpoint_id not in reader.inbox and checkpoint_id not in reader.snapshots:
                reader.inbox.append(checkpoint_id)

    @precondition(lambda self: self.pending is not None and not self.pending[2])
    @rule()
    def complete(self) -> None:
        assert self.pending is not None
        checkpoint_id, state, _ = self.pending
        self.pending = None
        splits: list[list[SourceSplit]] = []
        for reader in self.readers:
            at_barrier, row_count = reader.snapshots.pop(checkpoint_id)
            splits.append(at_barrier)
            self.committed += reader.rows[:row_count]
            reader.rows = reader.rows[row_count:]
            reader.snapshots = {
                key: one for key, one in reader.snapshots.items() if key > checkpoint_id
            }
        self.completed = (checkpoint_id, state, splits)
        self.world.coordinator.checkpoint_completed(checkpoint_id)

    @precondition(lambda self: self.pending is not None)
    @rule()
    def run_to_completion(self) -> None:
        for index in range(SUBTASK_COUNT):
            self.send_trigger(index)
            self.deliver(index, len(self.readers[index].inbox))
        self.complete()

    @precondition(lambda self: self.pending is not None)
    @rule()
    def abort(self) -> None:
        assert self.pending is not None
        checkpoint_id = self.pending[0]
        self.pending = None
        for reader in self.readers:
            reader.inbox = [one for one in reader.inbox if one != checkpoint_id]
            reader.snapshots.pop(checkpoint_id, None)
            self.open_gate(reader)
        self.world.coordinator.checkpoint_aborted(checkpoint_id)

    @rule(index=st.integers(0, SUBTASK_COUNT - 1))
    def fail_one(self, index: int) -> None:
        if self.pending is not None:
            self.abort()
        self.world.fail_reader(index)
        restored_id = None if self.completed is None else self.completed[0]
        self.world.coordinator.subtask_reset(index, restored_id)
        self.readers[index] = Reader([] if self.completed is None else self.completed[2][index])
        self.world.run_reader(index, asks=False)
        self.distribute()

    @rule()
    def fail_all(self) -> None:
        if self.pending is not None:
            self.abort()
        for index in range(SUBTASK_COUNT):
            self.world.fail_reader(index)
        completed = self.completed
        self.world.coordinator.reset(*((None, None) if completed is None else completed[:2]))
        for index in range(SUBTASK_COUNT):
            self.readers[index] = Reader([] if completed is None else completed[2][index])
            self.world.run_reader(index, asks=False)

    def open_gate(self, reader: Reader) -> None:
        reader.gated_by = None
        reader.inbox += reader.held
        reader.held = []

    @invariant()
    def each_split_has_one_owner(self) -> None:
        if not hasattr(self, "world"):
            return
        owned = [one.split_id for one in self.world.enumerator.left]
        for reader in self.readers:
            owned += reader.positions
            for event in reader.inbox + reader.held:
                if isinstance(event, AddSplits):
                    owned += [one.split_id for one in event.splits]
        assert sorted(owned) == [f"split-{number}" for number in range(SPLIT_COUNT)]

    @invariant()
    def no_row_is_published_twice_and_none_is_skipped(self) -> None:
        if not hasattr(self, "world"):
            return
        rows = self.committed + [row for reader in self.readers for row in reader.rows]
        assert len(set(rows)) == len(rows)
        for number in range(SPLIT_COUNT):
            name = f"split-{number}"
            mine = sorted(position for key, position in rows if key == name)
            assert mine == list(range(len(mine)))

    @invariant()
    def a_published_checkpoint_holds_each_split_once(self) -> None:
        if getattr(self, "completed", None) is None:
            return
        assert self.completed is not None
        _, state, readers = self.completed
        in_state = [decode_split(one) for one in msgspec.msgpack.decode(state, type=list[bytes])]
        names = [one.split_id for splits in [in_state, *readers] for one in splits]
        assert sorted(names) == [f"split-{number}" for number in range(SPLIT_COUNT)]


SplitConservation.TestCase.settings = hypothesis_settings(stateful_step_count=50, deadline=None)
TestSplitConservation = SplitConservation.TestCase


def test_splits_of_a_checkpoint_that_was_given_up_go_back_when_their_reader_fails() -> None:
    machine = SplitConservation()
    machine.begin()
    machine.begin_checkpoint()
    machine.run_to_completion()
    machine.request(0)
    machine.begin_checkpoint()
    machine.abort()
    machine.fail_one(0)
    left = sorted(one.split_id for one in machine.world.enumerator.left)
    assert left == [f"split-{number}" for number in range(SPLIT_COUNT)]
