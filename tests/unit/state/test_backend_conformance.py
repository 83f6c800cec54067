"""Both backends against one model: accesses in any order, snapshots, failures, changes of parallelism and backend."""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.checkpoint.handles import OperatorSubtaskState, StateFile
from headrace.core.checkpoints import CheckpointOptions, SnapshotKind
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.key_groups import key_group_range, key_groups_of
from headrace.core.key_hash import hash_keys
from headrace.core.operator_types import OperatorTypes
from headrace.core.record_batch import BatchType
from headrace.core.types.rows import Row
from headrace.core.types.type_info import Types
from headrace.functions.record import AggregateFunction
from headrace.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from headrace.functions.windows import TimeWindow
from headrace.state.operator_states import StatesOfOperator
from headrace.state.snapshots import FrozenState
from headrace.testing.memory_snapshots import MemorySnapshots, snapshot, write_frozen

PICKLED = Types.PICKLED_BYTE_ARRAY()
MAX_PARALLELISM = 128

KEYS = st.sampled_from(["a", "b", 1, -7, 2**70, ("a", 1), ("a", ("b",)), 2.5, b"x", ""])
WINDOWS = st.sampled_from([TimeWindow(0, 10), TimeWindow(10, 20)])
NUMBERS = st.integers(-100, 100)
KINDS = {
    "hashmap": {"state.backend.type": "hashmap"},
    "rocksdb": {"state.backend.type": "rocksdb", "execution.checkpointing.incremental": "true"},
}


class _Sum(AggregateFunction):
    def create_accumulator(self) -> list[int]:
        return [0]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator[0] += value
        return accumulator

    def get_result(self, accumulator: list[int]) -> int:
        return accumulator[0]

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return [acc_a[0] + acc_b[0]]


def descriptors() -> dict[str, StateDescriptor]:
    row = Types.ROW_NAMED(["n"], [Types.LONG()])
    return {
        "value": ValueStateDescriptor("value", row),
        "list": ListStateDescriptor("list", Types.LONG()),
        "map": MapStateDescriptor("map", PICKLED, Types.STRING()),
        "reducing": ReducingStateDescriptor("reducing", lambda a, b: a + b, Types.LONG()),
        "aggregating": AggregatingStateDescriptor("aggregating", _Sum(), PICKLED),
        "window": ListStateDescriptor("window", PICKLED),
    }


class _Subtask:
    def __init__(
        self,
        kind: str,
        scratch: str,
        restored: OperatorSubtaskState | None = None,
        parallelism: int = 1,
        index: int = 0,
    ) -> None:
        self.key_groups = key_group_range(index, parallelism, MAX_PARALLELISM)
        self.states = StatesOfOperator(
            key_groups=self.key_groups,
            max_parallelism=MAX_PARALLELISM,
            types=OperatorTypes((BatchType(PICKLED, PICKLED),), BatchType(PICKLED)),
            settings=Settings(KINDS[kind]),
            clock=ManualClock(),
            restored=restored,
            restored_checkpoint_id=None if restored is None else 1,
            reader=MemorySnapshots(),
            scratch=scratch,
        )
        backend = self.backend = self.states.create_keyed_backend()
        self.handles: dict[str, Any] = {
            name: backend.get_state(
                one, backend.window_scope if name == "window" else backend.key_scope
            )
            for name, one in descriptors().items()
        }


class BackendMachine(RuleBasedStateMachine):
    """The model: one dict per state, by key, or key and window."""

    kind = "hashmap"

    @initialize()
    def begin(self) -> None:
        self.scratch = tempfile.mkdtemp(prefix="conformance-")
        self.model: dict[str, dict[Any, Any]] = {name: {} for name in descriptors()}
        self.subtasks = [_Subtask(self.kind, self.scratch)]
        self.checkpoint_id = 0

    def _at(self, key: Any, window: TimeWindow | None = None) -> dict[str, Any]:
        (group,) = key_groups_of(hash_keys([key]), MAX_PARALLELISM).tolist()
        (owner,) = [one for one in self.subtasks if group in one.key_groups]
        owner.backend.set_current_key(key)
        owner.backend.set_current_namespace(window)
        return owner.handles

    @rule(key=KEYS, number=NUMBERS)
    def update_value(self, key: Any, number: int) -> None:
        self._at(key)["value"].update(Row(n=number))
        self.model["value"][key] = Row(n=number)

    @rule(key=KEYS, numbers=st.lists(NUMBERS, max_size=3))
    def add_to_list(self, key: Any, numbers: list[int]) -> None:
        self._at(key)["list"].add_all(numbers)
        if numbers:
            self.model["list"].setdefault(key, []).extend(numbers)

    @rule(key=KEYS, numbers=st.lists(NUMBERS, max_size=2))
    def update_list(self, key: Any, numbers: list[int]) -> None:
        self._at(key)["list"].update(numbers)
        self.model["list"].pop(key, None)
        if numbers:
            self.model["list"][key] = list(numbers)

    @rule(key=KEYS, map_key=KEYS, text=st.text(max_size=3))
    def put(self, key: Any, map_key: Any, text: str) -> None:
        self._at(key)["map"].put(map_key, text)
        self.model["map"].setdefault(key, {})[map_key] = text

    @rule(key=KEYS, map_key=KEYS)
    def remove(self, key: Any, map_key: Any) -> None:
        self._at(key)["map"].remove(map_key)
        held = self.model["map"].get(key, {})
        held.pop(map_key, None)
        if not held:
            self.model["map"].pop(key, None)

    @rule(key=KEYS, number=NUMBERS)
    def fold(self, key: Any, number: int) -> None:
        handles = self._at(key)
        for name in ("reducing", "aggregating"):
            handles[name].add(number)
            self.model[name][key] = self.model[name].get(key, 0) + number

    @rule(key=KEYS, window=WINDOWS, value=NUMBERS)
    def add_to_window(self, key: Any, window: TimeWindow, value: int) -> None:
        self._at(key, window)["window"].add([value])
        self.model["window"].setdefault((key, window), []).append([value])

    @rule(key=KEYS)
    def merge_windows(self, key: Any) -> None:
        target, source = TimeWindow(0, 10), TimeWindow(10, 20)
        self._at(key)
        (group,) = key_groups_of(hash_keys([key]), MAX_PARALLELISM).tolist()
        (owner,) = [one for one in self.subtasks if group in one.key_groups]
        owner.backend.merge_namespaces(descriptors()["window"], target, [source])
        moved = self.model["window"].pop((key, source), None)
        if moved is not None:
            self.model["window"].setdefault((key, target), []).extend(moved)

    @rule(key=KEYS, name=st.sampled_from(["value", "list", "map", "reducing", "aggregating"]))
    def clear(self, key: Any, name: str) -> None:
        self._at(key)[name].clear()
        self.model[name].pop(key, None)

    @rule(
        parallelism=st.integers(1, 3),
        snapshot_kind=st.sampled_from([SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT]),
        changes=st.booleans(),
    )
    def fail_and_restore(
        self, parallelism: int, snapshot_kind: SnapshotKind, changes: bool
    ) -> None:
        self.checkpoint_id += 1
        options = CheckpointOptions(kind=snapshot_kind)
        parts = [snapshot(one.states, self.checkpoint_id, options) for one in self.subtasks]
        merged = OperatorSubtaskState(tuple(chunk for part in parts for chunk in part.chunks))
        self._close()
        if changes and snapshot_kind.is_savepoint:
            self.kind = "hashmap" if self.kind == "rocksdb" else "rocksdb"
        self.subtasks = [
            _Subtask(self.kind, self.scratch, merged, parallelism, index)
            for index in range(parallelism)
        ]

    @rule(outcome=st.sampled_from(["complete", "abort", "nobody says"]))
    def take_a_checkpoint(self, outcome: str) -> None:
        self.checkpoint_id += 1
        for one in self.subtasks:
            snapshot(one.states, self.checkpoint_id)
            if outcome == "complete":
                one.states.checkpoint_completed(self.checkpoint_id)
            elif outcome == "abort":
                one.states.checkpoint_aborted(self.checkpoint_id)

    @invariant()
    def states_are_those_of_the_model(self) -> None:
        for name in descriptors():
            count = sum(one.backend.key_count(name) for one in self.subtasks)
            assert count == len(self.model[name]), name
        for key, wanted in self.model["value"].items():
            assert self._at(key)["value"].value() == wanted
        for key, wanted in self.model["list"].items():
            assert list(self._at(key)["list"].get()) == wanted
        for key, wanted in self.model["map"].items():
            assert dict(self._at(key)["map"].items()) == wanted
        for name in ("reducing", "aggregating"):
            for key, wanted in self.model[name].items():
                assert self._at(key)[name].get() == wanted
        for (key, window), wanted in self.model["window"].items():
            assert list(self._at(key, window)["window"].get()) == wanted

    def _close(self) -> None:
        for one in self.subtasks:
            one.states.close()

    def teardown(self) -> None:
        self._close()


class HeapMachine(BackendMachine):
    kind = "hashmap"


class RocksDBMachine(BackendMachine):
    kind = "rocksdb"


TestHeap = HeapMachine.TestCase
TestRocksDB = RocksDBMachine.TestCase
# Every example opens databases.
TestHeap.settings = TestRocksDB.settings = settings(
    max_examples=6, stateful_step_count=30, deadline=None
)


@contextlib.contextmanager
def rocksdb_subtask(tmp: Any, **arguments: Any) -> Iterator[_Subtask]:
    subtask = _Subtask("rocksdb", str(tmp), **arguments)
    try:
        yield subtask
    finally:
        subtask.states.close()


def _fill(subtask: _Subtask, begin: int, count: int) -> None:
    for number in range(begin, begin + count):
        subtask.backend.set_current_key(f"key-{number}")
        subtask.handles["reducing"].add(number)


def _tables(state: OperatorSubtaskState) -> dict[str, Any]:
    return {
        chunk.attributes["file"]: chunk.file
        for chunk in state.chunks
        if chunk.attributes["file"].endswith(".sst")
    }


def test_files_of_the_last_completed_checkpoint_are_referred_to(tmp_path: Any) -> None:
    with rocksdb_subtask(tmp_path) as subtask:
        _fill(subtask, 0, 100)
        first = snapshot(subtask.states, 1)
        _fill(subtask, 100, 10)
        second = snapshot(subtask.states, 2)
        assert not any(_tables(second)[name] is one for name, one in _tables(first).items())
        subtask.states.checkpoint_completed(2)
        third = snapshot(subtask.states, 3)
        assert all(_tables(third)[name] is one for name, one in _tables(second).items())
        assert all(file.is_shared for file in _tables(third).values())


@pytest.mark.parametrize("kind", [SnapshotKind.FULL_CHECKPOINT, SnapshotKind.SAVEPOINT])
def test_full_checkpoints_and_savepoints_refer_to_nothing(
    tmp_path: Any, kind: SnapshotKind
) -> None:
    with rocksdb_subtask(tmp_path) as subtask:
        _fill(subtask, 0, 100)
        known = {chunk.file.digest for chunk in snapshot(subtask.states, 1).chunks}
        subtask.states.checkpoint_completed(1)
        full = snapshot(subtask.states, 2, CheckpointOptions(kind=kind))
        if kind is SnapshotKind.SAVEPOINT:
            assert known.isdisjoint(chunk.file.digest for chunk in full.chunks)
            subtask.states.checkpoint_completed(2)
        assert not any(chunk.file is old for chunk in full.chunks for old in known)


def test_nothing_after_a_full_checkpoint_refers_to_what_was_before_it(tmp_path: Any) -> None:
    with rocksdb_subtask(tmp_path) as subtask:
        _fill(subtask, 0, 100)
        first = snapshot(subtask.states, 1)
        subtask.states.checkpoint_completed(1)
        snapshot(subtask.states, 2, CheckpointOptions(kind=SnapshotKind.FULL_CHECKPOINT))
        third = snapshot(subtask.states, 3)  # while nobody has said that the second is complete
        assert not any(_tables(third)[name] is one for name, one in _tables(first).items())


def test_an_aborted_checkpoint_and_a_completed_savepoint_are_no_base(tmp_path: Any) -> None:
    with rocksdb_subtask(tmp_path) as subtask:
        _fill(subtask, 0, 100)
        first = snapshot(subtask.states, 1)
        subtask.states.checkpoint_aborted(1)
        subtask.states.checkpoint_completed(1)
        second = snapshot(subtask.states, 2)
        assert not any(_tables(second)[name] is one for name, one in _tables(first).items())


class _PlacedSnapshots(MemorySnapshots):
    """Gives every file a place of its own, as a checkpoint storage does."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(
        self, name: str, content: bytes | memoryview, *, is_shared: bool = False
    ) -> StateFile:
        written = super().write(name, content, is_shared=is_shared)
        return msgspec.structs.replace(written, uri=f"{self._folder}/{name}")


def _placed(frozen: Sequence[FrozenState], folder: str) -> dict[str, str]:
    chunks = [chunk for part in frozen for chunk in part.write(_PlacedSnapshots(folder))]
    for part in frozen:
        part.discard()
    return {name: file.uri for name, file in _tables(OperatorSubtaskState(tuple(chunks))).items()}


@pytest.mark.parametrize("is_written_first", [True, False])
def test_a_file_that_a_later_checkpoint_has_uploaded_again_is_not_referred_to_at_its_old_place(
    tmp_path: Any, is_written_first: bool
) -> None:
    with rocksdb_subtask(tmp_path) as subtask:
        states = subtask.states
        _fill(subtask, 0, 100)
        fifth = _placed(states.freeze(5, CheckpointOptions()), "5")
        sixth: dict[str, str] = {}
        frozen = states.freeze(6, CheckpointOptions())
        if is_written_first:
            sixth = _placed(frozen, "6")
        states.checkpoint_completed(
            5
        )  # late: the sixth did not know, and once published the fifth's files go
        if not is_written_first:
            sixth = _placed(frozen, "6")
        seventh = _placed(states.freeze(7, CheckpointOptions()), "7")
        assert fifth.keys() == sixth.keys() == seventh.keys()
        assert set(fifth.values()).isdisjoint(seventh.values())


def test_a_file_that_all_later_checkpoints_refer_to_is_referred_to_on(tmp_path: Any) -> None:
    with rocksdb_subtask(tmp_path) as subtask:
        states = subtask.states
        _fill(subtask, 0, 100)
        fourth = _placed(states.freeze(4, CheckpointOptions()), "4")
        states.checkpoint_completed(4)
        assert _placed(states.freeze(5, CheckpointOptions()), "5") == fourth
        frozen = states.freeze(6, CheckpointOptions())
        states.checkpoint_completed(5)
        assert _placed(frozen, "6") == fourth
        assert _placed(states.freeze(7, CheckpointOptions()), "7") == fourth


@pytest.mark.parametrize("kind", [SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT])
def test_what_is_written_after_freezing_stays_out(tmp_path: Any, kind: SnapshotKind) -> None:
    with rocksdb_subtask(tmp_path) as subtask:
        _fill(subtask, 0, 10)
        frozen = subtask.states.freeze(1, CheckpointOptions(kind=kind))
        _fill(subtask, 5, 10)
        with ThreadPoolExecutor(1) as thread:
            taken = thread.submit(write_frozen, frozen).result()
    with rocksdb_subtask(tmp_path, restored=taken) as again:
        assert again.backend.key_count("reducing") == 10
        again.backend.set_current_key("key-7")
        assert again.handles["reducing"].get() == 7


def test_a_database_leaves_nothing_on_the_disk(tmp_path: Any) -> None:
    with rocksdb_subtask(tmp_path) as subtask:
        _fill(subtask, 0, 10)
        snapshot(subtask.states, 1)
        assert any(tmp_path.iterdir())
    assert not any(tmp_path.iterdir())


def test_the_files_of_rocksdb_are_refused_by_the_heap(tmp_path: Any) -> None:
    from headrace.state.evolution import StateIncompatibleError

    with rocksdb_subtask(tmp_path) as subtask:
        _fill(subtask, 0, 10)
        taken = snapshot(subtask.states, 1)
    with pytest.raises(StateIncompatibleError, match="take a savepoint with the old backend"):
        _Subtask("hashmap", str(tmp_path), taken)
