"""The coordinator of sources: readers and requests, and what goes back after a failure."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.cluster.job_master.coordinators import source_coordinator as module
from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.cluster.job_master.coordinators.source_coordinator import (
    SplitAssignmentTracker,
    create_source_coordinator,
)
from headrace.core.config import Settings
from headrace.core.errors import ProgramError, UserCodeError
from headrace.core.ids import (
    JobId,
    OperatorId,
)
from headrace.functions.source import (
    AddSplits,
    ConnectorEvent,
    EnumeratorPayload,
    NoMoreSplits,
    RegisterReader,
    RequestSplit,
    encode_split,
)
from tests.unit.cluster.job_master.source_world import LOCATION, ListEnumerator, World, split


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


def test_readers_and_splits_are_counted_and_a_new_enumerator_tells_what_it_has_left() -> None:
    world = World(4)
    world.coordinator.start()
    world.run_reader(0)
    world.run_reader(1)
    assert world.metrics.snapshot() == {
        "numRegisteredReaders": 2,
        "numSplitsAssigned": 2,
        "numSplitsReturned": 0,
        "enumerator.unassignedSplits": 2,
    }
    world.fail_reader(0)
    world.coordinator.subtask_reset(0, None)
    assert world.metrics.snapshot() == {
        "numRegisteredReaders": 1,
        "numSplitsAssigned": 2,
        "numSplitsReturned": 1,
        "enumerator.unassignedSplits": 3,
    }
    world.coordinator.reset(None, None)
    assert world.metrics.snapshot()["enumerator.unassignedSplits"] == 4


def test_metrics_that_an_enumerator_made_go_with_it() -> None:
    world = World(1)
    world.enumerator.context.metric_group.counter("retries").inc()
    assert world.metrics.snapshot()["enumerator.retries"] == 1
    world.coordinator.reset(None, None)
    assert "enumerator.retries" not in world.metrics.snapshot()


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


def test_what_an_enumerator_of_the_user_s_raises_names_operator_and_line() -> None:
    world = World(1)
    world.coordinator.start()
    world.enumerator.context.call_async(lambda: 0, lambda result, error: 1 // (result or 0))
    with pytest.raises(UserCodeError) as raised:
        world.later.waiting.pop()[1]()
    assert re.match(
        r"ZeroDivisionError: .* \(in operator 'numbers', .*test_source_coordinator\.py, line \d+\)\n",
        str(raised.value),
    )


def test_what_another_enumerator_raises_names_the_line_of_the_source() -> None:
    world = World(1, location="program.py, line 8")
    world.coordinator.start()
    read: Any = Path.read_text
    world.enumerator.context.call_async(lambda: Path("/nowhere/at/all"), read)
    with pytest.raises(
        UserCodeError,
        match=r"^FileNotFoundError: .*nowhere.* \(in operator 'numbers', program\.py, line 8\)\n",
    ):
        world.later.waiting.pop()[1]()


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


def test_a_backlog_is_reported_when_it_begins_and_ends_and_ends_with_its_enumerator() -> None:
    world = World(1)
    world.enumerators[0].context.set_is_processing_backlog(True)
    world.enumerators[0].context.set_is_processing_backlog(True)
    world.enumerators[0].context.set_is_processing_backlog(False)
    assert world.backlogs == [True, False]
    world.enumerators[0].context.set_is_processing_backlog(True)
    world.coordinator.reset(None, None)
    assert world.backlogs == [True, False, True, False]
    world.enumerators[0].context.set_is_processing_backlog(True)
    assert world.backlogs[-1] is False, "who was replaced has nothing to say"
