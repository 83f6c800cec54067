"""Questions of a client to a running job: the JobMaster says which operator is meant."""

import asyncio
import concurrent.futures
import contextlib
import pickle
from collections.abc import Coroutine, Generator
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headrace.api.client.committed_state import CommittedState
from headrace.api.client.job_client import CompletableFuture
from headrace.api.client.job_state import JobState
from headrace.checkpoint.errors import SnapshotSubsumedError, SubtaskNotReadableError
from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.state_queries import LiveStateInfo, StateReadResult
from headrace.core.errors import ProgramError
from headrace.core.ids import JobId, OperatorId
from headrace.core.record_batch import stream_bytes
from headrace.gateways.messages import (
    OperatorDescription,
    StateReadRequest,
    StoredCheckpoint,
    SubtaskState,
)

NAMED = OperatorDescription(OperatorId(b"a" * 16), "", "counter", "first", 1, 128)
MEANT = OperatorDescription(OperatorId(b"b" * 16), "counter", "sum", "second", 4, 128)
COUNT = LiveStateInfo(StateTable.KEYED, "count", "value", ())
RESULT = StateReadResult(5, 7, (COUNT,), is_found=True)


class Dispatcher:
    """A job of which one operator has the uid that is the name of another."""

    def __init__(self) -> None:
        self.requests: list[StateReadRequest] = []

    async def request_operators(self, job_id: JobId) -> tuple[OperatorDescription, ...]:
        return (NAMED, MEANT)

    async def request_operator(self, job_id: JobId, named: str) -> OperatorDescription:
        assert named == "counter"
        return MEANT

    async def read_state(self, job_id: JobId, request: StateReadRequest) -> SubtaskState:
        self.requests.append(request)
        return SubtaskState(0, "tm", RESULT)


def ask(work: Coroutine[Any, Any, Any]) -> CompletableFuture[Any]:
    future = concurrent.futures.Future[Any]()
    future.set_result(asyncio.run(work))
    return CompletableFuture(future)


def job_state(dispatcher: Any) -> JobState:
    return JobState(JobId(b"j" * 16), dispatcher, ask)


def test_all_subtasks_are_asked_of_the_operator_that_the_job_master_means() -> None:
    dispatcher = Dispatcher()
    state = job_state(dispatcher)
    found = state.live("counter", "count")
    assert len(found.subtasks) == 4 and found.rows.column_names == ["subtask"]
    assert len(state.live("counter").subtasks) == 4
    assert len(state.figures("counter").subtasks) == 4
    assert state.states("counter") == (COUNT,)
    asked = {(one.operator, one.subtask_index) for one in dispatcher.requests}
    assert asked == {(MEANT.operator_id.hex(), index) for index in range(4)}


def test_subtasks_without_rows_say_what_columns_there_are() -> None:
    empty = pa.schema({"key": pa.int64(), "namespace": pa.null(), "value": pa.binary()})
    full = pa.table({"key": [1], "namespace": [4], "value": [pickle.dumps("x")]})

    class Holding(Dispatcher):
        def __init__(self, *full_subtasks: int) -> None:
            super().__init__()
            self.full = full_subtasks

        async def read_state(self, job_id: JobId, request: StateReadRequest) -> SubtaskState:
            tables = [full] if request.subtask_index in self.full else []
            schema = full.schema if tables else empty
            opaque = msgspec.structs.replace(COUNT, opaque=("value",))
            pieces = (stream_bytes(schema, tables),)
            result = msgspec.structs.replace(RESULT, states=(opaque,), pieces=pieces)
            return SubtaskState(0, "tm", result)

    names = ["subtask", "key", "namespace", "value"]
    rows = job_state(Holding()).live("counter", "count").rows
    assert (rows.num_rows, rows.column_names) == (0, names)
    assert rows.schema.field("value").type == pa.binary()
    found = job_state(Holding(2)).live("counter", "count", unpickle=True).rows
    assert found.to_pylist() == [{"subtask": 2, "key": 1, "namespace": 4, "value": "'x'"}]


class Starting(Dispatcher):
    """A job whose first subtask does not run yet; the others answer some turns of the loop after it has said so."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = asyncio.Event()
        self.answer_count = 0

    async def read_state(self, job_id: JobId, request: StateReadRequest) -> SubtaskState:
        if request.subtask_index == 0:
            self.refused.set()
            raise SubtaskNotReadableError("'first (1/4)'", "it is INITIALIZING")
        await self.refused.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        self.answer_count += 1
        return await super().read_state(job_id, request)


def test_an_error_of_one_subtask_is_told_when_no_other_is_being_read_any_more() -> None:
    job = Starting()
    with pytest.raises(SubtaskNotReadableError, match="it is INITIALIZING"):
        job_state(job).figures("counter")
    assert job.answer_count == 3


class Subsuming(Dispatcher):
    """A job whose newest checkpoint is given up again `count` times, just before somebody opens it."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.newest = 0

    async def request_latest_checkpoint(self, job_id: JobId) -> StoredCheckpoint:
        self.newest += 1
        return StoredCheckpoint(self.newest, f"/jobs/chk-{self.newest}", 5, "")

    @contextlib.contextmanager
    def kept(self, uri: str, *_: object) -> Generator[str]:
        if self.newest <= self.count:
            raise SnapshotSubsumedError(uri, f"{uri}/_metadata", self.newest + 1)
        yield uri


def test_a_newer_checkpoint_is_asked_for_where_the_newest_is_given_up_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for count in (0, 2):
        job = Subsuming(count)
        monkeypatch.setattr(CommittedState, "kept", job.kept)
        with job_state(job).committed() as committed:
            assert str(committed) == f"/jobs/chk-{count + 1}"
    job = Subsuming(3)
    monkeypatch.setattr(CommittedState, "kept", job.kept)
    with pytest.raises(SnapshotSubsumedError, match="chk-3"), job_state(job).committed():
        pass
    assert job.newest == 3


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"row_limit": -1}, "row_limit must be 0 or more rows of each subtask, not -1"),
        ({"time_limit": timedelta(0)}, "time_limit must be longer than 0, not 0:00:00"),
    ],
)
def test_a_limit_that_is_none_is_refused_before_anybody_is_asked(
    limits: dict[str, Any], named: str
) -> None:
    with pytest.raises(ProgramError, match=named):
        job_state(None).live("counter", "count", **limits)
