"""States of every kind with a time to live, on a backend and under clocks that the test moves."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from headrace.checkpoint.handles import OperatorSubtaskState
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.operator_spec import OperatorTypes
from headrace.core.record_batch import BatchType
from headrace.core.types.time_values import Time
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
from headrace.functions.state_ttl import StateTtlConfig
from headrace.state.operator_state_handler import OperatorStateHandler
from headrace.state.ttl import EventClock
from headrace.testing.operator_harness import MemorySnapshots

PICKLED = Types.PICKLED_BYTE_ARRAY()
TEN_MS = Time.milliseconds(10)


class _Sum(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


def value() -> StateDescriptor:
    return ValueStateDescriptor("value", Types.LONG())


def elements() -> StateDescriptor:
    return ListStateDescriptor("list", Types.LONG())


def entries() -> StateDescriptor:
    return MapStateDescriptor("map", Types.STRING(), Types.LONG())


def reducing() -> StateDescriptor:
    return ReducingStateDescriptor("reducing", lambda a, b: a + b, Types.LONG())


def aggregating() -> StateDescriptor:
    return AggregatingStateDescriptor("aggregating", _Sum(), PICKLED)


class _Chosen:
    """The backend and the folder of the test that runs."""

    backend = "hashmap"
    scratch = ""
    opened: ClassVar[list[OperatorStateHandler]] = []


@contextmanager
def on_backend(backend: str, scratch: Path) -> Generator[str]:
    """Let homes be made on `backend`; close them in the end."""
    _Chosen.backend, _Chosen.scratch = backend, str(scratch)
    yield backend
    while _Chosen.opened:
        _Chosen.opened.pop().close()


class Home:
    """States on a clock that the test moves; the key is "k". `is_native`: checkpoints are RocksDB's own files."""

    def __init__(
        self,
        restored: OperatorSubtaskState | None = None,
        start_ms: int = 0,
        *,
        is_native: bool = False,
    ) -> None:
        settings = {
            "state.backend.type": _Chosen.backend,
            "execution.checkpointing.incremental": str(is_native),
        }
        self.clock = ManualClock(start_ms)
        self.states = OperatorStateHandler(
            key_groups=range(128),
            max_parallelism=128,
            types=OperatorTypes((BatchType(PICKLED, PICKLED),), BatchType(PICKLED)),
            settings=Settings(settings),
            clock=self.clock,
            restored=restored,
            reader=MemorySnapshots(),
            scratch=_Chosen.scratch,
        )
        _Chosen.opened.append(self.states)
        self.backend = self.states.create_keyed_backend()
        self.event_clock = self.backend.event_clock

    def state(
        self, descriptor: StateDescriptor, builder: StateTtlConfig.Builder | None = None
    ) -> Any:
        if builder is not None:
            descriptor.enable_time_to_live(builder.build())
        state = self.backend.get_state(descriptor, self.backend.key_scope)
        self.backend.set_current_key("k")
        return state


def at_record(clock: EventClock, timestamp_ms: int) -> None:
    """Let a record of `timestamp_ms` be handled from now on."""
    next(clock.along(["k"], np.array([timestamp_ms], dtype=np.int64)))


def ttl() -> StateTtlConfig.Builder:
    return StateTtlConfig.new_builder(TEN_MS)


def write(state: Any, descriptor: StateDescriptor) -> None:
    """Write 1, to the entry "a" of a map."""
    match descriptor:
        case ValueStateDescriptor():
            state.update(1)
        case MapStateDescriptor():
            state.put("a", 1)
        case _:
            state.add(1)


def read(state: Any, descriptor: StateDescriptor) -> Any:
    """Return what `write` wrote, or None."""
    match descriptor:
        case ValueStateDescriptor():
            return state.value()
        case MapStateDescriptor():
            return state.get("a")
        case ListStateDescriptor():
            return (list(state.get()) or [None])[0]
        case _:
            return state.get()


ALL_KINDS = pytest.mark.parametrize(
    "describe", [value, elements, entries, reducing, aggregating], ids=lambda one: one.__name__
)
