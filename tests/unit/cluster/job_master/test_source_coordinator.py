"""The coordinator of sources: readers and requests, what goes back after a failure, and who owns a split when."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.cluster.job_master import source_coordinator as module
from headrace.cluster.job_master.operator_coordinator import CoordinatorContext
from headrace.cluster.job_master.source_coordinator import (
    SourceCoordinator,
    create_source_coordinator,
)
from headrace.cluster.job_master.split_assignments import SplitAssignmentTracker
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    JobId,
    JobVertexId,
    OperatorId,
    ResourceId,
)
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.functions.split_enumerator import (
    AddSplits,
    ConnectorEvent,
    EnumeratorPayload,
    NoMoreSplits,
    RegisterReader,
    RequestSplit,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
    decode_split,
    encode_split,
    event_bytes,
    event_to_reader,
)

LOCATION = TaskManagerLocation(ResourceId("worker"), "host-1", 1, None, "host-id")


class ListEnumerator(SplitEnumerator):
    """Gives one split per request; where `is_patient`, it does not say that there are no more."""

    def __init__(self, context: SplitEnumeratorContext, content: bytes) -> None:
        count, self.is_patient = msgspec.msgpack.decode(content, type=tuple[int, bool])
        self.context = context
        self.left = [SourceSplit(f"split-{index}", b"0") for index in range(count)]
        self.notes: list[Any] = []

    def restore(self, state: bytes) -> None:
        self.left = [decode_split(one) for one in msgspec.msgpack.decode(state, type=list[bytes])]

    def start(self) -> None:
        self.notes.append("start")

    def handle_split_request(self, subtask_index: int, host: str) -> None:
        self.notes.append(("request", subtask_index, host))
        if self.left:
            self.context.assign_splits(subtask_index, [self.left.pop(0)])
        elif not self.is_patient:
            self.context.signal_no_more_splits(subtask_index)

    def add_splits_back(self, splits: Sequence[SourceSplit], subtask_index: int) -> None:
        self.left += splits

    def add_reader(self, subtask_index: int) -> None:
        self.notes.append(("reader", subtask_index))

    def handle_source_event(self, subtask_index: int, payload: bytes) -> None:
        self.notes.append(("event", subtask_index, payload))
        self.context.send_source_event(subtask_index, payload[::-1])

    def snapshot_state(self, checkpoint_id: int) -> bytes:
        return msgspec.msgpack.encode([encode_split(split) for split in self.left])

    def close(self) -> None:
        self.notes.append("close")


class LaterByHand:
    """Keeps what is to run later until the test runs it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def schedule(self, delay_ms: float, action: Callable[[], None], /) -> Any:
        self.waiting.append((delay_ms, action))

    def call_blocking(
        self, name: str, work: Callable[[], Any], handler: Callable[[Any, Any], None], /
    ) -> None:
        def run() -> None:
            try:
                result = work()
            except Exception as error:
                handler(None, error)
            else:
                handler(result, None)

        self.waiting.append((0, run))


class World:
    """A coordinator, and what it sends."""

    def __init__(self, split_count: int, parallelism: int = 2, is_patient: bool = False) -> None:
        self.sent: list[tuple[int, Any]] = []
        self.later = LaterByHand()
        self.enumerators: list[ListEnumerator] = []
        self.attempts = [0] * parallelism
        context = CoordinatorContext(
            JobId(bytes(16)),
            OperatorId(bytes(16)),
            "numbers",
            parallelism,
            Settings(),
            send_event=lambda index, payload: self.sent.append((index, event_to_reader(payload))),
            run_async=lambda action: action(),
            fail_job=lambda error: None,
            later=self.later,
        )

        def create(context: SplitEnumeratorContext, content: bytes) -> ListEnumerator:
            self.enumerators.append(ListEnumerator(context, content))
            return self.enumerators[-1]

        self.coordinator = SourceCoordinator(
            context, create, msgspec.msgpack.encode((split_count, is_patient))
        )

    @property
    def enumerator(self) -> ListEnumerator:
        return self.enumerators[-1]

    def attempt(self, index: int) -> ExecutionAttemptId:
        return ExecutionAttemptId(
            JobId(bytes(16)), ExecutionVertexId(JobVertexId(bytes(16)), index), self.attempts[index]
        )

    def tell(self, index: int, event: Any) -> None:
        self.coordinator.handle_event(self.attempt(index), event_bytes(event))

    def run_reader(self, index: int, *, asks: bool = True) -> None:
        self.tell(index, RegisterReader())
        if asks:
            self.tell(index, RequestSplit())
        self.coordinator.subtask_ready(self.attempt(index), LOCATION)

    def fail_reader(self, index: int) -> None:
        self.coordinator.subtask_failed(self.attempt(index))
        self.attempts[index] += 1

    def take_sent(self) -> list[tuple[int, Any]]:
        sent, self.sent = self.sent, []
        return sent


def split(index: int) -> SourceSplit:
    return SourceSplit(f"split-{index}", b"0")


def test_a_reader_s_request_while_it_opens_is_answered_once_it_runs() -> None:
    world = World(3)
    world.coordinator.start()
    world.tell(1, RegisterReader())
    world.tell(1, RequestSplit())
    assert world.sent == []
    world.coordinator.subtask_ready(world.attempt(1), LOCATION)
    assert world.take_sent() == [(1, AddSplits((split(0),)))]
    assert world.enumerator.notes == ["start", ("reader", 1), ("request", 1, "host-1")]


def test_a_reader_hears_when_there_are_no_more_splits() -> None:
    world = World(1)
    world.coordinator.start()
    world.run_reader(0)
    world.tell(0, RequestSplit())
    assert world.take_sent() == [(0, AddSplits((split(0),))), (0, NoMoreSplits())]


def test_a_subtask_that_had_finished_is_no_reader() -> None:
    world = World(1)
    world.coordinator.start()
    world.coordinator.subtask_ready(world.attempt(0), LOCATION)
    assert world.coordinator.registered_readers == []
    with pytest.raises(AssertionError, match="reader 0 is not registered"):
        world.coordinator.assign(0, [split(0)])


def test_words_of_the_connector_go_both_ways() -> None:
    world = World(1)
    world.coordinator.start()
    world.run_reader(0, asks=False)
    world.tell(0, ConnectorEvent(b"abc"))
    assert ("event", 0, b"abc") in world.enumerator.notes
    assert world.take_sent() == [(0, ConnectorEvent(b"cba"))]


def test_splits_assigned_after_the_restored_checkpoint_go_back() -> None:
    world = World(5)
    world.coordinator.start()
    world.run_reader(0)
    world.coordinator.checkpoint(1)
    world.tell(0, RequestSplit())
    world.coordinator.checkpoint(2)
    world.tell(0, RequestSplit())
    world.coordinator.checkpoint_completed(1)
    world.fail_reader(0)
    assert world.enumerator.left == [split(3), split(4)]
    world.coordinator.subtask_reset(0, 1)
    assert world.enumerator.left == [split(3), split(4), split(1), split(2)]


def test_without_a_checkpoint_all_of_a_subtask_s_splits_go_back_and_only_its() -> None:
    world = World(4)
    world.coordinator.start()
    world.run_reader(0)
    world.run_reader(1)
    world.fail_reader(0)
    world.coordinator.subtask_reset(0, None)
    assert world.enumerator.left == [split(2), split(3), split(0)]


def test_a_reset_of_the_whole_source_makes_a_new_enumerator_from_its_state() -> None:
    world = World(4)
    world.coordinator.start()
    world.run_reader(0)
    state = world.coordinator.checkpoint(1)
    world.tell(0, RequestSplit())
    world.fail_reader(0)
    world.coordinator.reset(1, state)
    assert world.enumerators[0].notes[-1] == "close"
    assert world.enumerator.notes == ["start"]
    assert world.enumerator.left == [split(1), split(2), split(3)]
    world.coordinator.reset(None, None)
    assert len(world.enumerator.left) == 4


def test_a_restored_coordinator_starts_its_enumerator_only_when_it_is_started() -> None:
    world = World(4)
    world.coordinator.reset(7, msgspec.msgpack.encode([encode_split(split(3))]))
    assert world.enumerator.notes == []
    world.coordinator.start()
    assert world.enumerator.notes == ["start"]
    assert world.enumerator.left == [split(3)]


def test_what_a_replaced_enumerator_had_begun_is_not_heard_of_again() -> None:
    world = World(1)
    world.coordinator.start()
    heard: list[Any] = []
    old = world.enumerator.context
    old.call_async(lambda: "found", lambda result, error: heard.append((result, error)))
    old.call_async(lambda: "later", lambda *found: heard.append(found), delay_ms=50)
    assert [delay for delay, _ in world.later.waiting] == [0, 50]
    world.coordinator.reset(None, None)
    for _, run in world.later.waiting:
        run()
    assert heard == []
    world.later.waiting.clear()
    world.enumerator.context.call_async(lambda: 1 // 0, lambda *found: heard.append(found))
    world.later.waiting.pop()[1]()
    assert heard[0][0] is None
    assert isinstance(heard[0][1], ZeroDivisionError)


def test_an_enumerator_that_is_not_installed_is_named() -> None:
    context = CoordinatorContext(
        JobId(bytes(16)), OperatorId(bytes(16)), "orders", 1, Settings(),
        lambda *_: None, lambda _: None, lambda _: None,
    )  # fmt: skip
    payload = msgspec.msgpack.encode(EnumeratorPayload("nobody's", b""))
    with pytest.raises(ProgramError, match="'orders' needs the enumerator 'nobody's'"):
        create_source_coordinator(context, payload)


def test_an_enumerator_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "entry_point_names", lambda group: ("list",))
    monkeypatch.setattr(module, "load_entry_point", lambda group, name: ListEnumerator)
    context = CoordinatorContext(
        JobId(bytes(16)), OperatorId(bytes(16)), "orders", 1, Settings(),
        lambda *_: None, lambda _: None, lambda _: None,
    )  # fmt: skip
    content = msgspec.msgpack.encode((2, False))
    coordinator = create_source_coordinator(
        context, msgspec.msgpack.encode(EnumeratorPayload("list", content))
    )
    coordinator.start()
    assert len(msgspec.msgpack.decode(coordinator.checkpoint(1))) == 2


def test_a_published_checkpoint_makes_the_tracker_forget_what_was_assigned_before() -> None:
    tracker = SplitAssignmentTracker()
    tracker.assigned(0, [split(0)])
    tracker.checkpoint_taken(1)
    tracker.assigned(0, [split(1)])
    tracker.checkpoint_taken(2)
    tracker.checkpoint_completed(2)
    tracker.assigned(1, [split(2)])
    assert tracker.take_back(0, 2) == []
    assert tracker.take_back(1, 2) == [split(2)]


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
