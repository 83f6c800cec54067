"""Checkpoints of RocksDB: which files they refer to, what is frozen, and what is left on the disk."""

import contextlib
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from headrace.checkpoint.handles import OperatorSubtaskState, StateFile, StateTable
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.functions.process import TimeDomain
from headrace.state.backend import FrozenState
from headrace.testing.operator_harness import MemorySnapshots, snapshot, write_frozen
from tests.unit.state.subtasks import KINDS, Subtask


@contextlib.contextmanager
def rocksdb_subtask(tmp: Any, **arguments: Any) -> Generator[Subtask]:
    subtask = Subtask("rocksdb", str(tmp), **arguments)
    try:
        yield subtask
    finally:
        subtask.states.close()


def _fill(subtask: Subtask, begin: int, count: int) -> None:
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


@pytest.mark.parametrize("kind", [one for one in SnapshotKind if one.is_native])
def test_a_native_savepoint_and_checkpoints_refer_to_nothing_of_each_other(
    tmp_path: Any, kind: SnapshotKind
) -> None:
    with rocksdb_subtask(tmp_path) as subtask:
        states, savepoint = subtask.states, CheckpointOptions(kind=kind)
        _fill(subtask, 0, 100)
        first = _placed(states.freeze(1, CheckpointOptions()), "1")
        states.checkpoint_completed(1)
        second = _placed(states.freeze(2, savepoint), "2")
        assert second.keys() == first.keys()
        assert all(uri.startswith("2/") for uri in second.values())
        states.checkpoint_completed(2)
        assert _placed(states.freeze(3, CheckpointOptions()), "3") == first


def test_a_claimed_native_savepoint_is_left_behind_by_the_first_checkpoint(tmp_path: Any) -> None:
    with rocksdb_subtask(tmp_path) as subtask:
        _fill(subtask, 0, 100)
        frozen = subtask.states.freeze(1, CheckpointOptions(SnapshotKind.NATIVE_SAVEPOINT))
        chunks = [chunk for part in frozen for chunk in part.write(_PlacedSnapshots("saved"))]
    # A savepoint has no shared folder.
    saved = OperatorSubtaskState(
        tuple(
            msgspec.structs.replace(
                chunk, file=msgspec.structs.replace(chunk.file, is_shared=False)
            )
            for chunk in chunks
        )
    )
    with rocksdb_subtask(tmp_path, restored=saved) as again:
        # With a claim this may be an increment, and the savepoint's folder goes as it is subsumed.
        placed = _placed(again.states.freeze(2, CheckpointOptions()), "2")
        assert placed
        assert not any(uri.startswith("saved/") for uri in placed.values())


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


@pytest.mark.parametrize(
    "kind", [SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT, SnapshotKind.NATIVE_SAVEPOINT]
)
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
    with pytest.raises(StateIncompatibleError, match="restore a canonical savepoint taken with it"):
        Subtask("hashmap", str(tmp_path), taken)


def _set_timers(subtask: Subtask, count: int) -> None:
    for number in range(count):
        subtask.backend.set_current_key(f"key-{number}")
        subtask.timers.register(TimeDomain.EVENT_TIME, number)


def test_timers_lie_in_the_files_that_later_checkpoints_refer_to(tmp_path: Any) -> None:
    with rocksdb_subtask(tmp_path) as subtask:
        _set_timers(subtask, 100)
        first = snapshot(subtask.states, 1)
        subtask.states.checkpoint_completed(1)
        second = snapshot(subtask.states, 2)
        assert all(chunk.table is StateTable.NATIVE for chunk in second.chunks)
        assert _tables(second).keys() >= _tables(first).keys() != set()
        assert all(_tables(second)[name] is one for name, one in _tables(first).items())
    with rocksdb_subtask(tmp_path, restored=second, parallelism=2, index=1) as again:
        again.timers.advance_watermark(99)
        assert again.fired
        assert again.fired == [
            (number, f"key-{number}", None) for number in range(100) if again.owns(f"key-{number}")
        ]


@pytest.mark.parametrize(
    "kind", [SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT, SnapshotKind.NATIVE_SAVEPOINT]
)
def test_timers_that_fire_after_freezing_are_in_the_snapshot(
    tmp_path: Any, kind: SnapshotKind
) -> None:
    with rocksdb_subtask(tmp_path) as subtask:
        _set_timers(subtask, 10)
        frozen = subtask.states.freeze(1, CheckpointOptions(kind=kind))
        subtask.timers.advance_watermark(5)
        subtask.timers.register(TimeDomain.PROCESSING_TIME, 10**12)
        with ThreadPoolExecutor(1) as thread:
            taken = thread.submit(write_frozen, frozen).result()
    with rocksdb_subtask(tmp_path, restored=taken) as again:
        assert sorted(again.timers_of(TimeDomain.EVENT_TIME)) == [
            (number, f"key-{number}", None) for number in range(10)
        ]
        assert again.timers_of(TimeDomain.PROCESSING_TIME) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["CHECKPOINT", "SAVEPOINT", "NATIVE_SAVEPOINT"])
@pytest.mark.parametrize("after", ["rocksdb", "rocksdb, heap timers"])
@pytest.mark.parametrize("before", ["rocksdb", "rocksdb, heap timers"])
def test_every_timer_is_at_the_subtask_of_its_key_at_any_parallelism(
    tmp_path: Any, before: str, after: str, kind: str
) -> None:
    wanted = {(number % 7, number, None) for number in range(200)}
    restored: OperatorSubtaskState | None = None
    for backend, parallelism in ((before, 2), (after, 3), (before, 1)):
        subtasks = [
            Subtask(backend, str(tmp_path), restored, parallelism, index)
            for index in range(parallelism)
        ]
        for time_ms, key, _ in wanted if restored is None else ():
            (owner,) = [one for one in subtasks if one.owns(key)]
            owner.backend.set_current_key(key)
            owner.timers.register(TimeDomain.EVENT_TIME, time_ms)
        for one in subtasks:
            timers = one.timers_of(TimeDomain.EVENT_TIME)
            assert sorted(timers) == sorted(timer for timer in wanted if one.owns(timer[1]))
        parts = [snapshot(one.states, 1, CheckpointOptions(SnapshotKind[kind])) for one in subtasks]
        restored = OperatorSubtaskState(tuple(chunk for part in parts for chunk in part.chunks))
        for one in subtasks:
            one.states.close()


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [("CHECKPOINT", "CHECKPOINT"), ("SAVEPOINT", "CHECKPOINT")])
@pytest.mark.parametrize("backend", KINDS)
def test_two_snapshots_that_are_written_at_one_time_see_their_own_moments(
    tmp_path: Any, backend: str, kinds: tuple[str, str]
) -> None:
    subtask = Subtask(backend, str(tmp_path))
    frozen: list[Sequence[FrozenState]] = []
    for number, kind in enumerate(kinds, start=1):
        _fill(subtask, 0, 5)
        _set_timers(subtask, 10 * number)
        options = CheckpointOptions(kind=SnapshotKind[kind])
        frozen.append(subtask.states.freeze(number, options))
    subtask.timers.advance_watermark(3)
    _fill(subtask, 0, 5)
    second, first = write_frozen(frozen[1]), write_frozen(frozen[0])
    subtask.states.close()
    for number, taken in ((1, first), (2, second)):
        again = Subtask(backend, str(tmp_path), taken)
        again.backend.set_current_key("key-4")
        assert again.handles["reducing"].get() == 4 * number
        assert sorted(again.timers_of(TimeDomain.EVENT_TIME)) == [
            (time_ms, f"key-{time_ms}", None) for time_ms in range(10 * number)
        ]
        again.states.close()
