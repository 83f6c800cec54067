"""All backends against one model: accesses in any order, snapshots, failures, changes of parallelism and backend."""

import enum
import tempfile
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.checkpoint.handles import OperatorSubtaskState
from headrace.core.checkpoints import CheckpointOptions, SnapshotKind
from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.types.rows import Row
from headrace.functions.process import TimeDomain
from headrace.functions.windows import TimeWindow
from headrace.testing.memory_snapshots import snapshot, write_frozen
from tests.unit.state.subtasks import Subtask, descriptors
from tests.unit.state.ttl_states import at_record

KEYS = st.sampled_from(
    [
        *("a", "b", 1, -7, 2**70, ("a", 1), ("a", ("b",)), 2.5, b"x", ""),
        # Python calls these equal to one of those, and a dict has one place for them.
        *(True, 1.0, np.int64(1), ("a", True), Decimal("2.5")),
    ]
)
WINDOWS = st.sampled_from([TimeWindow(0, 10), TimeWindow(10, 20)])
NUMBERS = st.integers(-100, 100)
DOMAINS = st.sampled_from(list(TimeDomain))
TIMES = st.integers(-5, 5)
NAMESPACES = st.one_of(st.none(), WINDOWS)


class BackendMachine(RuleBasedStateMachine):
    """The model: one dict per state, by key, or key and window."""

    kind = "hashmap"

    @initialize()
    def begin(self) -> None:
        self.scratch = tempfile.mkdtemp(prefix="conformance-")
        self.model: dict[str, dict[Any, Any]] = {name: {} for name in descriptors()}
        self.timers: dict[TimeDomain, set[tuple[int, Any, Any]]] = {
            one: set() for one in TimeDomain
        }
        self.subtasks = [Subtask(self.kind, self.scratch)]
        self.checkpoint_id = 0
        self.fading: dict[Any, dict[Any, tuple[str, int]]] = {}
        """What a state with a time to live holds, with the event times of the last accesses."""
        self.watermark_ms = MIN_TIMESTAMP

    def _owner(self, key: Any) -> Subtask:
        (owner,) = [one for one in self.subtasks if one.owns(key)]
        owner.backend.set_current_key(key)
        return owner

    def _at(self, key: Any, window: TimeWindow | None = None) -> dict[str, Any]:
        owner = self._owner(key)
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

    @rule(key=KEYS, map_key=KEYS, text=st.text(max_size=3), timestamp=TIMES)
    def put_at(self, key: Any, map_key: Any, text: str, timestamp: int) -> None:
        owner = self._owner(key)
        at_record(owner.backend.event_clock, timestamp)
        owner.fading.put(map_key, text)
        held = self.fading.setdefault(key, {})
        live_since = self._live(key).get(map_key, ("", timestamp))[1]
        held[map_key] = (text, max(live_since, timestamp, self.watermark_ms))

    @rule(key=KEYS)
    def merge_windows(self, key: Any) -> None:
        target, source = TimeWindow(0, 10), TimeWindow(10, 20)
        self._owner(key).backend.merge_namespaces(descriptors()["window"], target, [source])
        moved = self.model["window"].pop((key, source), None)
        if moved is not None:
            self.model["window"].setdefault((key, target), []).extend(moved)

    @rule(key=KEYS, name=st.sampled_from(["value", "list", "map", "reducing", "aggregating"]))
    def clear(self, key: Any, name: str) -> None:
        self._at(key)[name].clear()
        self.model[name].pop(key, None)

    @rule(domain=DOMAINS, time_ms=TIMES, key=KEYS, namespace=NAMESPACES)
    def register_timer(self, domain: TimeDomain, time_ms: int, key: Any, namespace: Any) -> None:
        self._owner(key).timers.register(domain, time_ms, namespace)
        self.timers[domain].add((time_ms, key, namespace))

    @rule(domain=DOMAINS, time_ms=TIMES, key=KEYS, namespace=NAMESPACES)
    def delete_timer(self, domain: TimeDomain, time_ms: int, key: Any, namespace: Any) -> None:
        self._owner(key).timers.delete(domain, time_ms, namespace)
        self.timers[domain].discard((time_ms, key, namespace))

    @rule(watermark_ms=TIMES)
    def advance_watermark(self, watermark_ms: int) -> None:
        self.watermark_ms = max(self.watermark_ms, watermark_ms)
        timers = self.timers[TimeDomain.EVENT_TIME]
        due = {timer for timer in timers if timer[0] <= watermark_ms}
        timers -= due
        fired = list[tuple[int, Any, Any]]()
        for one in self.subtasks:
            one.timers.advance_watermark(watermark_ms)
            one.backend.event_clock.end_batch()
            assert [timer[0] for timer in one.fired] == sorted(timer[0] for timer in one.fired)
            fired += one.fired
            one.fired.clear()
        assert len(fired) == len(due)
        assert set(fired) == due

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
        if changes:
            self.kind = self._other_kind(snapshot_kind)
        self.subtasks = [
            Subtask(self.kind, self.scratch, merged, parallelism, index)
            for index in range(parallelism)
        ]
        for one in self.subtasks:
            one.backend.event_clock.advance(self.watermark_ms)

    def _other_kind(self, snapshot_kind: SnapshotKind) -> str:
        """A savepoint fits every backend, RocksDB's files only that, wherever its timers are kept."""
        if snapshot_kind.is_savepoint:
            return {"hashmap": "rocksdb", "rocksdb": "hashmap"}.get(self.kind, "rocksdb")
        return {"rocksdb": "rocksdb, heap timers"}.get(
            self.kind, self.kind.removesuffix(", heap timers")
        )

    @rule(outcome=st.sampled_from(["complete", "abort", "nobody says", "never written"]))
    def take_a_checkpoint(self, outcome: str) -> None:
        self.checkpoint_id += 1
        for one in self.subtasks:
            frozen = one.states.freeze(self.checkpoint_id, CheckpointOptions())
            if outcome == "never written":
                one.states.checkpoint_aborted(self.checkpoint_id)
                for part in frozen:
                    part.discard()
                continue
            write_frozen(frozen)
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

    @invariant()
    def only_what_lives_is_read(self) -> None:
        for key in self.fading:
            wanted = {map_key: text for map_key, (text, _) in self._live(key).items()}
            assert dict(self._owner(key).fading.items()) == wanted

    def _live(self, key: Any) -> dict[Any, tuple[str, int]]:
        held = self.fading.get(key, {})
        return {one: pair for one, pair in held.items() if pair[1] + 3 > self.watermark_ms}

    @invariant()
    def timers_are_those_of_the_model(self) -> None:
        for domain, wanted in self.timers.items():
            found = [timer for one in self.subtasks for timer in one.timers_of(domain)]
            assert len(found) == len(wanted)
            assert set(found) == wanted

    def _close(self) -> None:
        for one in self.subtasks:
            one.states.close()

    def teardown(self) -> None:
        self._close()


class HeapMachine(BackendMachine):
    kind = "hashmap"


class RocksDBMachine(BackendMachine):
    kind = "rocksdb"


class HeapTimersMachine(BackendMachine):
    kind = "rocksdb, heap timers"


TestHeap = HeapMachine.TestCase
TestRocksDB = RocksDBMachine.TestCase
TestRocksDBWithHeapTimers = HeapTimersMachine.TestCase
# Every example opens databases.
TestHeap.settings = TestRocksDB.settings = TestRocksDBWithHeapTimers.settings = settings(
    max_examples=6, stateful_step_count=30, deadline=None
)


class Named(NamedTuple):
    name: str
    number: int


class Side(enum.StrEnum):
    NORTH = "north"


PLUS_2, MINUS_3 = timezone(timedelta(hours=2)), timezone(timedelta(hours=-3))

EQUAL: list[list[Any]] = [
    [1, True, 1.0, np.int64(1), np.bool_(True)],
    [Decimal(0), False, 0],
    [("a", 1), ("a", True), ("a", 1.0)],
    [Row(0, "a"), Row(False, "a")],
    [frozenset({1, 9, 17}), frozenset({17, 9.0, True})],
    [Decimal("1.10"), Decimal("1.1"), Decimal("1.1000")],
    [Decimal("1.23456789012345678901234567890"), Decimal("1.2345678901234567890123456789")],
    [Decimal("-1E-30"), Decimal("-10E-31")],
    [(Decimal("0.3"), 1), (Decimal("0.30"), 1.0)],
    [Named("b", 1), ("b", 1), ("b", True)],
    [(("c", 2), 3), (Named("c", 2), 3)],
    ["north", Side.NORTH],
    [datetime(2024, 7, 1, 12, tzinfo=UTC), datetime(2024, 7, 1, 14, tzinfo=PLUS_2)],
    [datetime(2024, 7, 1, 12), datetime(2024, 7, 1, 12, fold=1)],
    [time(12, tzinfo=UTC), time(14, tzinfo=PLUS_2)],
    [time(0, 30, tzinfo=PLUS_2), time(0, 0, tzinfo=timezone(timedelta(hours=1, minutes=30)))],
    [time(23, tzinfo=MINUS_3), time(22, 30, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))],
    [time(12), time(12, fold=1)],
]


@pytest.mark.parametrize("kind", ["hashmap", "rocksdb"])
def test_keys_that_python_calls_equal_are_one_key(kind: str, tmp_path: Path) -> None:
    subtask = Subtask(kind, str(tmp_path))
    for keys in EQUAL:
        for key in keys:
            subtask.backend.set_current_key(key)
            subtask.handles["reducing"].add(1)
            subtask.handles["map"].put(key, "x")
            subtask.timers.register(TimeDomain.EVENT_TIME, 3, None)
        assert subtask.handles["reducing"].get() == len(keys)
        assert list(subtask.handles["map"].keys()) == keys[:1]
    assert subtask.backend.key_count("reducing") == len(EQUAL)
    assert len(subtask.timers_of(TimeDomain.EVENT_TIME)) == len(EQUAL)
    subtask.states.close()
