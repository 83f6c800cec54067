"""RocksDB's own files from when -1 stood for values without a last access: it is read as that, and only there."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.checkpoint.handles import OperatorSubtaskState, StateTable
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.functions.state_ttl import StateTtlConfig
from headrace.testing.operator_harness import snapshot
from tests.unit.state.ttl_states import (
    ALL_KINDS,
    TEN_MS,
    Home,
    at_record,
    on_backend,
    read,
    ttl,
    value,
    write,
)

Describe = Callable[[], Any]


@pytest.fixture(autouse=True)
def on_rocksdb(tmp_path: Path) -> Iterator[None]:
    with on_backend("rocksdb", tmp_path):
        yield


def event_ttl() -> StateTtlConfig.Builder:
    return StateTtlConfig.new_builder(TEN_MS).use_event_time()


def written_at_minus_one(describe: Describe, key: str = "k") -> OperatorSubtaskState:
    """Return RocksDB's own files with one value, whose stored last access is -1."""
    home, descriptor = Home(is_native=True), describe()
    state = home.state(descriptor, event_ttl())
    home.backend.set_current_key(key)
    at_record(home.event_clock, -1)
    write(state, descriptor)
    taken = snapshot(home.states)
    assert {chunk.table for chunk in taken.chunks} == {StateTable.NATIVE}
    return taken


def of_the_first_version(*parts: OperatorSubtaskState) -> OperatorSubtaskState:
    """Return snapshots as one that does not say how its stamps are stored."""
    chunks = [
        msgspec.structs.replace(
            chunk,
            attributes={key: chunk.attributes[key] for key in chunk.attributes if key != "stamps"},
        )
        for part in parts
        for chunk in part.chunks
    ]
    return OperatorSubtaskState(tuple(chunks))


def assert_lives_from_500_on(home: Home, descriptor: Any, keys: str = "k") -> None:
    state = home.state(descriptor, event_ttl())
    for watermark_ms, wanted in ((500, 1), (509, 1), (510, None)):
        home.event_clock.advance(watermark_ms)
        for key in keys:
            home.backend.set_current_key(key)
            assert read(state, descriptor) == wanted


@ALL_KINDS
def test_values_without_a_time_live_from_the_first_watermark_on(describe: Describe) -> None:
    old = of_the_first_version(written_at_minus_one(describe))
    assert_lives_from_500_on(Home(old, is_native=True), describe())


def test_values_without_a_time_live_from_the_restore_on_in_processing_time() -> None:
    home, descriptor = Home(of_the_first_version(written_at_minus_one(value)), 1_000), value()
    state = home.state(descriptor, ttl())
    home.clock.advance_ms(9)
    assert read(state, descriptor) == 1
    home.clock.advance_ms(1)
    assert read(state, descriptor) is None


def test_databases_that_are_put_together_are_brought_into_the_form_of_now_each() -> None:
    old = of_the_first_version(*(written_at_minus_one(value, key) for key in "kl"))
    assert_lives_from_500_on(Home(old, is_native=True), value(), "kl")


@pytest.mark.parametrize("kind", [SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT])
def test_later_snapshots_hold_them_without_a_time_too(kind: SnapshotKind) -> None:
    home = Home(of_the_first_version(written_at_minus_one(value)), is_native=True)
    taken = snapshot(home.states, 2, CheckpointOptions(kind=kind))
    assert_lives_from_500_on(Home(taken, is_native=True), value())


def test_an_access_at_minus_one_stays_one_in_the_files_of_now() -> None:
    home, descriptor = Home(written_at_minus_one(value), is_native=True), value()
    state = home.state(descriptor, event_ttl())
    home.event_clock.advance(8)
    assert read(state, descriptor) == 1
    home.event_clock.advance(9)
    assert read(state, descriptor) is None
