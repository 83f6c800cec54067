"""Queues of timers, in memory and in RocksDB: one model for both, and what is particular to each."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.types.type_info import Types
from headrace.functions.windows import TimeWindow
from headrace.state.backend import TimerQueue
from headrace.state.heap.timers import HeapTimerQueue
from headrace.state.restored_keyed_state import KeySpace
from headrace.state.rocksdb.database import Database
from headrace.state.rocksdb.keys import CompositeKeys
from headrace.state.rocksdb.timers import RocksTimerQueue

HEAD_SIZE = 2
ROWS = CheckpointOptions(kind=SnapshotKind.SAVEPOINT)
NewQueue = Callable[[], TimerQueue]


class _Disk:
    """One database; each queue has a column family of its own."""

    def __init__(self, folder: str) -> None:
        self.database = Database(folder, 8 << 20)
        self.database.open()
        self.keys = CompositeKeys(KeySpace(Types.PICKLED_BYTE_ARRAY(), range(128), 128))
        self._count = 0

    def queue(self) -> RocksTimerQueue:
        self._count += 1
        return self.reopened(str(self._count))

    def reopened(self, name: str) -> RocksTimerQueue:
        return RocksTimerQueue(
            self.database, name, self.keys, HEAD_SIZE, lambda options: options.kind.is_savepoint
        )


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Disk]:
    one = _Disk(str(tmp_path_factory.mktemp("timers")))
    yield one
    one.database.close()


@pytest.fixture(scope="module", params=["heap", "rocksdb"])
def new_queue(request: pytest.FixtureRequest, disk: _Disk) -> NewQueue:
    return HeapTimerQueue if request.param == "heap" else disk.queue


def test_timers_that_callbacks_register_or_delete_take_part_at_once(new_queue: NewQueue) -> None:
    queue = new_queue()
    fired: list[tuple[int, str]] = []

    def fire(time_ms: int, key: Any, namespace: Any) -> None:
        fired.append((time_ms, key))
        if len(fired) == 1:
            queue.register(2, "past", None)
            queue.register(time_ms, key, None)
            queue.register(7, "later", None)
            queue.register(11, "too late", None)
            queue.delete(6, "c", None)

    queue.register(5, "a", None)
    queue.register(6, "c", None)
    assert queue.fire_until(10, fire)
    assert fired == [(5, "a"), (2, "past"), (5, "a"), (7, "later")]
    assert [len(queue), queue.next_time_ms()] == [1, 11]


def test_a_timer_that_an_earlier_one_of_its_time_deletes_does_not_fire(
    new_queue: NewQueue,
) -> None:
    queue = new_queue()
    for key in ("a", "b", "c"):
        queue.register(5, key, None)
    fired: list[str] = []

    def fire(time_ms: int, key: str, namespace: None) -> None:
        fired.append(key)
        if len(fired) == 1:
            for other in {"a", "b", "c"} - {key}:
                queue.delete(5, other, None)

    queue.fire_until(5, fire)
    assert len(fired) == 1
    assert len(queue) == 0


KEYS = st.sampled_from(["a", 7])
"""Few, since what is in memory is counted by key group."""
TIMES = st.integers(-3, 20)
Reaction = tuple[str, int, Any]
"""What a callback does: register or delete a timer, perhaps of another key, perhaps one that is due."""
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), TIMES, KEYS),
        st.tuples(st.just("delete"), TIMES, KEYS),
        st.tuples(st.just("fire"), TIMES, st.integers(0, 3)),
        st.tuples(st.just("fire"), st.just(20), st.just(1)),
        st.tuples(st.just("freeze"), TIMES, st.just("")),
        st.tuples(st.just("release"), TIMES, st.just("")),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(
    st.sets(st.tuples(TIMES, KEYS), min_size=6, max_size=20),
    OPERATIONS,
    st.dictionaries(
        st.tuples(TIMES, KEYS),
        st.tuples(st.sampled_from(["register", "delete"]), st.integers(-3, 25), KEYS),
        max_size=5,
    ),
)
@example(
    {(5, "a"), (5, 7), (9, "a")},
    [("fire", 20, 0)],
    # Whichever comes first.
    {(5, "a"): ("register", 2, "a"), (5, 7): ("register", 2, 7)},
)
def test_a_queue_behaves_as_a_sorted_set(
    new_queue: NewQueue,
    already: set[tuple[int, Any]],
    operations: list[tuple[str, int, Any]],
    reactions: dict[tuple[int, Any], Reaction],
) -> None:
    """Each timer once, the earliest first; slices end after as many as they may; what was frozen stays as it was."""
    queue, model = new_queue(), set[tuple[int, Any]]()
    for time_ms, key in already:
        queue.register(time_ms, key, None)
        model.add((time_ms, key))
    views: list[tuple[Any, set[tuple[int, Any]]]] = []
    for name, time_ms, other in operations:
        match name:
            case "register":
                queue.register(time_ms, other, None)
                model.add((time_ms, other))
            case "delete":
                queue.delete(time_ms, other, None)
                model.discard((time_ms, other))
            case "fire":
                _fire_as_modelled(queue, model, time_ms, other, dict(reactions))
            case "freeze":
                views.append((queue.freeze(ROWS), set(model)))
            case _:
                if views:
                    views.pop(time_ms % len(views))[0].release()
        assert queue.next_time_ms() == min((time for time, _ in model), default=None)
    assert len(queue) == len(model)
    _fire_as_modelled(queue, model, 25, 0, {})
    assert len(queue) == 0
    for view, wanted in views:
        assert sorted((time, str(key)) for time, key, _ in view) == sorted(
            (time, str(key)) for time, key in wanted
        )


def _fire_as_modelled(
    queue: TimerQueue,
    model: set[tuple[int, Any]],
    limit_ms: int,
    slice_size: int,
    reactions: dict[tuple[int, Any], Reaction],
) -> None:
    """`slice_size` 0: all that are due."""
    fired: list[tuple[int, Any]] = []

    def fire(time_ms: int, key: Any, _: Any) -> None:
        assert time_ms == min(time for time, _ in model) <= limit_ms
        model.remove((time_ms, key))
        fired.append((time_ms, key))
        match reactions.pop((time_ms, key), None):
            case ("register", at_ms, other):
                queue.register(at_ms, other, None)
                model.add((at_ms, other))
            case ("delete", at_ms, other):
                queue.delete(at_ms, other, None)
                model.discard((at_ms, other))
            case _:
                pass

    is_done = queue.fire_until(
        limit_ms, fire, (lambda: len(fired) >= slice_size) if slice_size else None
    )
    assert is_done == (not any(time <= limit_ms for time, _ in model))
    assert is_done or len(fired) == slice_size


def test_a_timer_moved_with_every_record_leaves_nothing_behind() -> None:
    queue = HeapTimerQueue()
    for time_ms in range(10_000):
        queue.register(time_ms, "key", None)
        queue.delete(time_ms - 1, "key", None)
    assert len(queue) == 1
    assert len(queue._times) < 200


def test_a_timer_moved_with_every_record_leaves_nothing_in_memory(disk: _Disk) -> None:
    queue = disk.queue()
    for time_ms in range(2_000):
        queue.register(time_ms, "key", None)
        queue.delete(time_ms - 1, "key", None)
    assert len(queue) == 1
    assert len(queue._first_times) < 200


def test_only_the_first_timers_of_each_key_group_are_in_memory(disk: _Disk) -> None:
    queue = disk.queue()
    for number in reversed(range(5_000)):
        queue.register(number, number % 500, None)
    assert len(queue) == 5_000
    assert max(len(head.timers) for head in queue._heads.values()) == HEAD_SIZE
    fired: list[int] = []
    queue.fire_until(4_999, lambda time_ms, *_: fired.append(time_ms))
    assert fired == list(range(5_000))
    assert [len(queue), queue.next_time_ms()] == [0, None]


@pytest.mark.parametrize(
    ("key", "namespace"),
    [
        ("a", None),
        (2.0, None),
        (("a", 1.5, 2.0), TimeWindow(-5, 5)),
        (Decimal("2.00"), b"x"),
        (True, (1, ("b",))),
    ],
)
def test_key_and_namespace_come_back_from_the_disk_as_they_were(
    disk: _Disk, key: Any, namespace: Any
) -> None:
    name = repr((key, namespace))
    disk.reopened(name).register(-1, key, namespace)
    fired: list[Any] = []
    disk.reopened(name).fire_until(0, lambda *timer: fired.append(timer))
    assert [(repr(timer), type(timer[1])) for timer in fired] == [
        (repr((-1, key, namespace)), type(key))
    ]


@pytest.mark.parametrize(("key", "equal"), [(True, 1), (("a", (False,)), ("a", (0,)))])
def test_what_a_dict_takes_for_one_key_has_one_form_whichever_came_first(
    key: Any, equal: Any
) -> None:
    forms = [CompositeKeys(KeySpace(Types.PICKLED_BYTE_ARRAY(), range(128), 128)) for _ in "ab"]
    wanted = [forms[0].of_key(key), forms[0].of_key(equal)]
    assert [forms[1].of_key(equal), forms[1].of_key(key)] == wanted[::-1]
    assert wanted[0] == wanted[1]


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 300)), max_size=60))
def test_a_queue_that_is_opened_again_goes_on_where_it_was(
    disk: _Disk, timers: list[tuple[int, int]]
) -> None:
    queue = disk.queue()
    for time_ms, key in timers:
        queue.register(time_ms, key, None)
    again = disk.reopened(queue._name)
    for time_ms, key in timers[:5]:
        again.register(time_ms, key, None)
    fired: list[tuple[int, int]] = []
    again.fire_until(50, lambda time_ms, key, _: fired.append((time_ms, key)))
    assert [time_ms for time_ms, _ in fired] == sorted(time_ms for time_ms, _ in set(timers))
    assert set(fired) == set(timers)


def test_a_snapshot_of_the_databases_files_writes_no_rows_of_timers(disk: _Disk) -> None:
    queue = disk.queue()
    queue.register(1, "a", None)
    assert list(queue.freeze(CheckpointOptions())) == []
    assert list(queue.freeze(ROWS)) == [(1, "a", None)]


def test_a_queue_without_timers_takes_no_room_in_the_database(disk: _Disk) -> None:
    families = disk.database.families
    queue = disk.queue()
    queue.delete(1, "a", None)
    assert [queue.next_time_ms(), len(queue)] == [None, 0]
    assert disk.database.families == families
