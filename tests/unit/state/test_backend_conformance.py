"""All backends against one model: accesses in any order, snapshots, failures, changes of parallelism and backend."""

import copy
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headrace.checkpoint.handles import OperatorSubtaskState
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.types.rows import Row
from headrace.functions.process import TimeDomain
from headrace.functions.windows import TimeWindow
from headrace.state.backend import FrozenState
from headrace.testing.operator_harness import snapshot, write_frozen
from tests.unit.state.subtasks import Subtask, descriptors
from tests.unit.state.ttl_states import at_record

SNAPSHOT_KINDS = [SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT, SnapshotKind.NATIVE_SAVEPOINT]
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


Model = dict[str, dict[Any, Any]]
"""Of each state what is in it, by key, or key and window."""
Timers = dict[TimeDomain, set[tuple[int, Any, Any]]]


@dataclass
class Frozen:
    """A checkpoint under way, and what there was when it was frozen."""

    checkpoint_id: int
    parts: Sequence[Sequence[FrozenState]]
    model: Model
    timers: Timers


class BackendMachine(RuleBasedStateMachine):
    """The model: one dict per state, by key, or key and window."""

    kind = "hashmap"

    @initialize()
    def begin(self) -> None:
        self.scratch = tempfile.mkdtemp(prefix="conformance-")
        self.model: Model = {name: {} for name in descriptors()}
        self.timers: Timers = {one: set() for one in TimeDomain}
        self.under_way: list[Frozen] = []
        self.now_ms = 0
        self.subtasks = [Subtask(self.kind, self.scratch)]
        self.checkpoint_id = 0
        self.fading: dict[Any, dict[Any, tuple[str, int]]] = {}
        """What a state with a time to live holds, with the event times of the last accesses."""
        self.watermark_ms = MIN_TIMESTAMP

    def _owner(self, key: Any) -> Subtask:
        return owner_of(self.subtasks, key)

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
        for one in self.subtasks:
            one.timers.advance_watermark(watermark_ms)
            one.backend.event_clock.end_batch()
        self._check_fired(TimeDomain.EVENT_TIME, watermark_ms)

    @rule(by_ms=st.integers(1, 3))
    def advance_clock(self, by_ms: int) -> None:
        self.now_ms += by_ms
        for one in self.subtasks:
            one.wall.advance_to(self.now_ms)
        # One fires when its millisecond is over.
        self._check_fired(TimeDomain.PROCESSING_TIME, self.now_ms - 1)

    def _check_fired(self, domain: TimeDomain, limit_ms: int) -> None:
        """Each timer up to the limit has fired once, on every subtask in the order of time, and no other one."""
        timers = self.timers[domain]
        due = {timer for timer in timers if timer[0] <= limit_ms}
        timers -= due
        fired = list[tuple[int, Any, Any]]()
        for one in self.subtasks:
            assert [timer[0] for timer in one.fired] == sorted(timer[0] for timer in one.fired)
            fired += one.fired
            one.fired.clear()
        assert len(fired) == len(due)
        assert set(fired) == due

    @rule(
        parallelism=st.integers(1, 3),
        snapshot_kind=st.sampled_from(SNAPSHOT_KINDS),
        changes=st.booleans(),
        down_ms=st.integers(0, 2),
    )
    def fail_and_restore(
        self, parallelism: int, snapshot_kind: SnapshotKind, changes: bool, down_ms: int
    ) -> None:
        """What comes due meanwhile by the clock fires when the clock moves on."""
        self._drop_checkpoints()
        self.now_ms += down_ms
        self.checkpoint_id += 1
        options = CheckpointOptions(kind=snapshot_kind)
        parts = [snapshot(one.states, self.checkpoint_id, options) for one in self.subtasks]
        merged = OperatorSubtaskState(tuple(chunk for part in parts for chunk in part.chunks))
        self._close()
        if changes:
            self.kind = self._other_kind(snapshot_kind)
        self.subtasks = [
            Subtask(self.kind, self.scratch, merged, parallelism, index, now_ms=self.now_ms)
            for index in range(parallelism)
        ]
        for one in self.subtasks:
            one.backend.event_clock.advance(self.watermark_ms)

    def _other_kind(self, snapshot_kind: SnapshotKind) -> str:
        """A canonical savepoint fits every backend, RocksDB's files only that, wherever its timers are kept."""
        if snapshot_kind.is_savepoint and not snapshot_kind.is_native:
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

    @precondition(lambda self: len(self.under_way) < 2)
    @rule(kind=st.sampled_from(SNAPSHOT_KINDS))
    def freeze(self, kind: SnapshotKind) -> None:
        """Begin a checkpoint, which is written while everything goes on, and another one may begin."""
        self.checkpoint_id += 1
        options = CheckpointOptions(kind=kind)
        parts = [one.states.freeze(self.checkpoint_id, options) for one in self.subtasks]
        self.under_way.append(
            Frozen(self.checkpoint_id, parts, copy.deepcopy(self.model), copy.deepcopy(self.timers))
        )

    @precondition(lambda self: self.under_way)
    @rule(index=st.integers(0, 1), is_told=st.booleans())
    def write(self, index: int, is_told: bool) -> None:
        """Whoever restores it finds what there was when it was frozen."""
        one = self.under_way.pop(index % len(self.under_way))
        states = [write_frozen(parts) for parts in one.parts]
        merged = OperatorSubtaskState(tuple(chunk for state in states for chunk in state.chunks))
        restored = Subtask(self.kind, self.scratch, merged)
        assert_holds([restored], one.model)
        assert_waiting([restored], one.timers)
        restored.states.close()
        if is_told:
            for subtask in self.subtasks:
                subtask.states.checkpoint_completed(one.checkpoint_id)

    def _drop_checkpoints(self) -> None:
        for one in self.under_way:
            for parts in one.parts:
                for part in parts:
                    part.discard()
        self.under_way.clear()

    @invariant()
    def states_are_those_of_the_model(self) -> None:
        assert_holds(self.subtasks, self.model)

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
        assert_waiting(self.subtasks, self.timers)

    def _close(self) -> None:
        for one in self.subtasks:
            one.states.close()

    def teardown(self) -> None:
        self._drop_checkpoints()
        self._close()
        shutil.rmtree(self.scratch)


def owner_of(subtasks: Sequence[Subtask], key: Any) -> Subtask:
    """The subtask of a key, at which it is the current one now."""
    (owner,) = [one for one in subtasks if one.owns(key)]
    owner.backend.set_current_key(key)
    return owner


def assert_holds(subtasks: Sequence[Subtask], model: Model) -> None:
    def at(key: Any, window: TimeWindow | None = None) -> dict[str, Any]:
        owner = owner_of(subtasks, key)
        owner.backend.set_current_namespace(window)
        return owner.handles

    for name, entries in model.items():
        assert sum(one.backend.key_count(name) for one in subtasks) == len(entries), name
    for key, wanted in model["value"].items():
        assert at(key)["value"].value() == wanted
    for key, wanted in model["list"].items():
        assert list(at(key)["list"].get()) == wanted
    for key, wanted in model["map"].items():
        assert dict(at(key)["map"].items()) == wanted
    for name in ("reducing", "aggregating"):
        for key, wanted in model[name].items():
            assert at(key)[name].get() == wanted
    for (key, window), wanted in model["window"].items():
        assert list(at(key, window)["window"].get()) == wanted


def assert_waiting(subtasks: Sequence[Subtask], timers: Timers) -> None:
    for domain, wanted in timers.items():
        found = [timer for one in subtasks for timer in one.timers_of(domain)]
        assert len(found) == len(wanted)
        assert set(found) == wanted


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
