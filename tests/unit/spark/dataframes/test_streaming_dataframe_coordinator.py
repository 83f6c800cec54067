"""Orders that a streaming DataFrame's coordinator gives to its micro-batches; the query and its calls are scripted."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.connectors.dataframe.messages import (
    PartitionEnded,
    PartitionPosition,
    PartitionsAnnounced,
    ReaderOpened,
    StreamState,
)
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId, JobId, JobVertexId, OperatorId
from headrace.spark.dataframes import streaming_dataframe_coordinator as tested
from headrace.spark.dataframes.dataframe_coordinator import DataFramePushError, PushTargetLostError
from headrace.spark.dataframes.streaming_dataframe_coordinator import (
    QueryAheadError,
    QueryOptions,
    StreamingDataFrameCoordinator,
)
from headrace.spark.session.authentication import TaskSecrets

JOB = JobId(bytes(16))
PARALLELISM = 2


@dataclass
class Later:
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def schedule(self, delay_ms: float, action: Callable[[], None]) -> Any:
        self.waiting.append(action)

    def call_blocking(self, *_: Any) -> None:
        raise AssertionError


class World:
    """A coordinator with two subtasks, whose query calls when the test says so."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        interval: str = "1 s",
        location: str = "",
        **more: str,
    ) -> None:
        self.announced: list[tuple[int, PartitionsAnnounced]] = []
        self.failures: list[BaseException] = []
        self.later = Later()
        self.queries: list[str] = []
        monkeypatch.setattr(tested, "start_thread", lambda name, _: self.queries.append(name))
        settings = {one.replace("_", "."): value for one, value in more.items()}
        if interval:
            settings["execution.checkpointing.interval"] = interval
        context = CoordinatorContext(
            JOB,
            OperatorId(bytes(16)),
            "orders",
            PARALLELISM,
            Settings(settings),
            lambda index, payload: self.announced.append(
                (index, msgspec.msgpack.decode(payload, type=PartitionsAnnounced))
            ),
            lambda action: action(),
            self.failures.append,
            self.later,
        )
        no_dataframe: Any = None
        secrets = TaskSecrets(b"", None)
        options = QueryOptions({}, location)
        self.coordinator: Any = StreamingDataFrameCoordinator(
            context, no_dataframe, options, secrets
        )

    def attempt(self, index: int) -> ExecutionAttemptId:
        return ExecutionAttemptId(JOB, ExecutionVertexId(JobVertexId(bytes(16)), index), 0)

    def run(self, *positions: tuple[int, ...]) -> None:
        """Let both subtasks run; `positions`: partitions in the state of each."""
        for index in range(PARALLELISM):
            mine = positions[index] if positions else ()
            opened = ReaderOpened(tuple(PartitionPosition(one, 5) for one in mine))
            location: Any = f"tm-{index}"
            self.coordinator.handle_event(self.attempt(index), msgspec.msgpack.encode(opened))
            self.coordinator.subtask_ready(self.attempt(index), location)

    def call(self, batch_id: int) -> Any:
        """Let the query call foreachBatch; returns the turn."""
        turn = tested.Turn(batch_id, 4)
        self.coordinator._arrived(turn)
        return turn

    def push(self, turn: Any, count: int) -> Any:
        """Take the order to push, plan it with so many partitions, and push all."""
        order = turn.orders.get_nowait()
        self.coordinator._planned(order, count)
        self.coordinator._push_ended(turn, order, None)
        return order

    def end(self, *partitions: int) -> None:
        for partition in partitions:
            ended = msgspec.msgpack.encode(PartitionEnded(partition))
            self.coordinator.handle_event(self.attempt(partition % PARALLELISM), ended)


def is_done(turn: Any) -> bool:
    return not turn.orders.empty() and turn.orders.get_nowait() is None


def test_the_query_starts_when_all_subtasks_are_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    assert world.queries == []
    world.run()
    assert world.queries == ["query-orders"]


@pytest.mark.parametrize("location", ["", "query"])
@pytest.mark.parametrize("directory", ["", "checkpoints"])
def test_the_query_of_a_preview_has_a_location_of_its_own_that_is_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, location: str, directory: str
) -> None:
    monkeypatch.chdir(tmp_path)
    location = str(tmp_path / location) if location else ""
    more = {"execution_checkpointing_dir": str(tmp_path / directory)} if directory else {}
    usual = World(monkeypatch, location=location, **more).coordinator
    preview = World(monkeypatch, interval="", location=location, headrace_preview="true", **more)
    own = Path(preview.coordinator._location())
    assert not location or usual._location() == location
    own.mkdir(parents=True, exist_ok=True)
    (own / "offsets").touch()
    asyncio.run(preview.coordinator.close())
    assert not own.exists()
    assert str(own) != location and list(tmp_path.glob("query*")) == []


def test_a_micro_batch_is_done_when_a_checkpoint_that_has_all_of_it_is_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.run()
    turn = world.call(0)
    world.push(turn, 3)
    world.end(0, 1)
    world.coordinator.checkpoint(1)
    world.end(2)
    world.coordinator.checkpoint_completed(1)
    assert turn.orders.empty()
    world.coordinator.checkpoint(2)
    assert turn.orders.empty()
    world.coordinator.checkpoint_completed(2)
    assert is_done(turn)


def test_partitions_of_the_next_micro_batch_go_on_behind_those_of_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.run()
    world.push(world.call(0), 3)
    world.end(0, 1, 2)
    world.coordinator.checkpoint(1)
    world.coordinator.checkpoint_completed(1)
    world.announced.clear()
    order = world.push(world.call(1), 2)
    assert order.target.first_partition == 3
    assert world.announced == [
        (0, PartitionsAnnounced((4,), 1, 3, False)),
        (1, PartitionsAnnounced((3,), 1, 3, False)),
    ]


def test_a_micro_batch_that_the_checkpoint_has_whole_is_passed_over_when_spark_replays_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    state = StreamState(4, 10, 2, True, 4, "query")
    world.coordinator.reset(7, msgspec.msgpack.encode(state))
    world.run((), ())
    assert is_done(world.call(4))


def test_of_a_micro_batch_that_the_checkpoint_has_in_part_the_rest_is_pushed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    state = StreamState(4, 10, 3, True, 4, "query")
    world.coordinator.reset(7, msgspec.msgpack.encode(state))
    world.run((12,), ())
    order = world.push(world.call(4), 3)
    assert dict(order.target.open_partitions) == {12: 0}
    assert world.announced[0] == (0, PartitionsAnnounced((12,), 4, 10, False))


def test_after_a_restart_without_a_new_driver_the_waiting_micro_batch_is_pushed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.run()
    turn = world.call(0)
    world.push(turn, 2)
    state = world.coordinator.checkpoint(1)
    world.coordinator.subtask_failed(world.attempt(0))
    world.coordinator.reset(1, state)
    world.run((0,), (1,))
    assert dict(turn.orders.get_nowait().target.open_partitions) == {0: 0, 1: 1}


@pytest.mark.parametrize("batch_id", [3, 6])
def test_a_query_that_is_at_another_micro_batch_than_the_checkpoint_is_refused(
    monkeypatch: pytest.MonkeyPatch, batch_id: int
) -> None:
    world = World(monkeypatch)
    state = StreamState(4, 10, 2, True, 4, "query")
    world.coordinator.reset(7, msgspec.msgpack.encode(state))
    world.run((), ())
    turn = world.call(batch_id)
    assert turn.orders.empty()
    assert [type(one) for one in world.failures] == [QueryAheadError]


def test_a_query_that_has_left_a_micro_batch_of_which_rows_are_missing_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    state = StreamState(4, 10, 2, True, 4, "query")
    world.coordinator.reset(7, msgspec.msgpack.encode(state))
    world.run((10,), ())
    world.call(5)
    assert [type(one) for one in world.failures] == [QueryAheadError]


def test_a_replayed_micro_batch_that_is_cut_in_another_way_fails_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    state = StreamState(4, 10, 3, True, 4, "query")
    world.coordinator.reset(7, msgspec.msgpack.encode(state))
    world.run((12,), ())
    world.push(world.call(4), 2)
    (failure,) = world.failures
    assert "had 3 partitions, but now has 2" in str(failure)


def test_a_push_to_a_subtask_that_is_gone_is_tried_again_and_any_other_failure_is_the_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.run()
    turn = world.call(0)
    order = turn.orders.get_nowait()
    world.coordinator._planned(order, 2)
    world.coordinator._push_ended(turn, order, PushTargetLostError("orders", "gone"))
    (again,) = world.later.waiting
    again()
    order = turn.orders.get_nowait()
    assert world.failures == []
    failure = DataFramePushError("orders", "ValueError: no")
    world.coordinator._push_ended(turn, order, failure)
    assert world.failures == [failure]


def test_a_query_that_ends_by_itself_ends_the_source_and_one_that_fails_fails_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.run()
    world.coordinator._query_ended(None)
    assert [message.is_last for _, message in world.announced] == [True, True]
    failure = DataFramePushError("orders", "no such file")
    world.coordinator._query_ended(failure)
    assert world.failures == [failure]


def test_without_checkpoints_a_micro_batch_is_done_with_its_last_row(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(monkeypatch, interval="")
    world.coordinator.start()
    assert "without checkpoints" in caplog.text
    world.run()
    turn = world.call(0)
    world.push(turn, 2)
    assert turn.orders.empty()
    world.end(0, 1)
    assert is_done(turn)


def test_a_savepoint_of_a_job_without_checkpoints_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ProgramError, match=r"checkpointing\.interval"):
        World(monkeypatch, interval="").coordinator.checkpoint(1)
