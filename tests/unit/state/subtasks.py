"""A subtask with all kinds of keyed state and with timers, on either backend, for tests of snapshots."""

from typing import Any

from headrace.checkpoint.handles import OperatorSubtaskState
from headrace.checkpoint.storage.snapshot_files import SnapshotReader
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.key_groups import key_group_range, key_groups_of
from headrace.core.key_hash import hash_keys
from headrace.core.operator_spec import OperatorTypes
from headrace.core.record_batch import BatchType
from headrace.core.types.time_values import Time
from headrace.core.types.type_info import Types
from headrace.functions.process import TimeDomain
from headrace.functions.record import AggregateFunction
from headrace.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from headrace.functions.state_ttl import StateTtlConfig
from headrace.operators.runtime.internal_timer_service import InternalTimerService
from headrace.state.operator_state_handler import OperatorStateHandler
from headrace.testing.operator_harness import ManualTimers, MemorySnapshots

PICKLED = Types.PICKLED_BYTE_ARRAY()
MAX_PARALLELISM = 128

KINDS = {
    "hashmap": {"state.backend.type": "hashmap"},
    "rocksdb": {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
        "state.backend.rocksdb.timer-service.cache-size": "2",
    },
    "rocksdb, heap timers": {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
        "state.backend.rocksdb.timer-service.factory": "HEAP",
    },
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


def fading() -> StateDescriptor:
    """A state whose entries live 3 ms in event time."""
    descriptor = MapStateDescriptor("fading", PICKLED, Types.STRING())
    config = StateTtlConfig.new_builder(Time.milliseconds(3)).use_event_time()
    descriptor.enable_time_to_live(config.build())
    return descriptor


class Subtask:
    """One of `parallelism` subtasks of an operator with seven states and timers; `fired` since somebody looked."""

    def __init__(
        self,
        kind: str,
        scratch: str,
        restored: OperatorSubtaskState | None = None,
        parallelism: int = 1,
        index: int = 0,
        reader: SnapshotReader | None = None,
        now_ms: int = 0,
    ) -> None:
        self.key_groups = key_group_range(index, parallelism, MAX_PARALLELISM)
        self.states = OperatorStateHandler(
            key_groups=self.key_groups,
            max_parallelism=MAX_PARALLELISM,
            types=OperatorTypes((BatchType(PICKLED, PICKLED),), BatchType(PICKLED)),
            settings=Settings(KINDS[kind]),
            clock=ManualClock(),
            restored=restored,
            restored_checkpoint_id=None if restored is None else 1,
            reader=reader or MemorySnapshots(),
            scratch=scratch,
        )
        backend = self.backend = self.states.create_keyed_backend()
        self.handles: dict[str, Any] = {
            name: backend.get_state(
                one, backend.window_scope if name == "window" else backend.key_scope
            )
            for name, one in descriptors().items()
        }
        self.fading: Any = backend.get_state(fading(), backend.key_scope)
        self.fired: list[tuple[int, Any, Any]] = []
        self.wall = ManualTimers(ManualClock(now_ms))
        self.timers = InternalTimerService(backend, self.wall, self._note_fired, self._note_fired)
        self.timers.keep_in(self.states, "timers")

    def _note_fired(self, time_ms: int, key: Any, namespace: Any) -> None:
        assert self.backend.key_scope.entry == key
        self.fired.append((time_ms, key, namespace))

    def owns(self, key: Any) -> bool:
        """Whether the exchange sends the rows of a key here."""
        return int(key_groups_of(hash_keys([key]), MAX_PARALLELISM)[0]) in self.key_groups

    def timers_of(self, domain: TimeDomain) -> list[tuple[int, Any, Any]]:
        """All timers that wait, in no order."""
        frozen = self.timers._queue(domain).freeze(CheckpointOptions(kind=SnapshotKind.SAVEPOINT))
        return list(frozen)
