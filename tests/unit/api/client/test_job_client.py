import _thread
import asyncio
import concurrent.futures
import signal
import threading
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest

from headrace import StreamExecutionEnvironment, Types
from headrace.api.client import job_client
from headrace.api.client.collected_records import CloseableIterator, CollectedRecordsLostError
from headrace.api.client.job_client import ClusterClosedError, CompletableFuture, JobClient
from headrace.core.barriers import SavepointFormatType
from headrace.core.errors import (
    HeadraceError,
    JobCancelledError,
    JobExecutionError,
    RemoteError,
)
from headrace.core.ids import JobId, OperatorId
from headrace.core.lifecycle import JobStatus
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.gateways.dispatcher import JobResult
from headrace.gateways.errors import UnknownJobError
from headrace.gateways.job_master import CollectedPiece, CollectedResults
from headrace.gateways.messages import Acknowledge, ErrorInfo
from tests.unit.api.recording import RecordingExecutor

JOB_ID = JobId(bytes(16))
SINK_ID = OperatorId(bytes(16))
INT = BatchType(Types.INT())


def _format_text(format_type: SavepointFormatType) -> str:
    return ", native" if format_type is SavepointFormatType.NATIVE else ""


class ScriptedDispatcher:
    """Answers like a Dispatcher with one job; `pages` are the collected results, by fetch.

    A KeyboardInterrupt among the answers is a Ctrl-C: it hits the main thread, which waits for that answer.
    """

    def __init__(self) -> None:
        self.status = JobStatus.RUNNING
        self.status_answers: list[JobStatus | Exception | KeyboardInterrupt] = []
        self.end_status = JobStatus.FINISHED
        self.failure: ErrorInfo | None = None
        self.pages: list[CollectedResults | Exception] = []
        self.offsets: list[int] = []
        self.cancel_count = 0
        self.thread_names: set[str] = set()

    async def trigger_checkpoint(self, job_id: JobId) -> int:
        return 7

    async def trigger_savepoint(
        self,
        job_id: JobId,
        target_directory: str,
        format_type: SavepointFormatType,
    ) -> str:
        return f"{target_directory}/savepoint{_format_text(format_type)}"

    async def stop_with_savepoint(
        self,
        job_id: JobId,
        target_directory: str,
        is_drained: bool,
        format_type: SavepointFormatType,
    ) -> str:
        drained = ", drained" if is_drained else ""
        return f"{target_directory}/stopped{drained}{_format_text(format_type)}"

    async def request_job_status(self, job_id: JobId) -> JobStatus:
        self.thread_names.add(threading.current_thread().name)
        if self.status_answers:
            answer = self.status_answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            if isinstance(answer, JobStatus):
                return answer
            _thread.interrupt_main()
        return self.status

    async def await_job_end(self, job_id: JobId, wait_max_ms: int) -> JobStatus:
        await asyncio.sleep(0)  # whoever else has something to ask comes first
        return await self.request_job_status(job_id)

    async def cancel_job(self, job_id: JobId, is_forced: bool = False) -> Acknowledge:
        self.cancel_count += 1
        self.status = self.end_status = JobStatus.CANCELED
        return Acknowledge()

    async def request_accumulators(self, job_id: JobId) -> dict[str, float]:
        return {"lines": 2.0 if self.status is JobStatus.RUNNING else 3.0}

    async def request_job_result(self, job_id: JobId) -> JobResult:
        return JobResult(job_id, "job", self.end_status, 42, {"lines": 3.0}, self.failure)

    async def fetch_collected_results(
        self, job_id: JobId, operator_id: OperatorId, offset: int, max_piece_count: int
    ) -> CollectedResults:
        self.offsets.append(offset)
        page = self.pages.pop(0)
        if isinstance(page, Exception):
            raise page
        return page


@pytest.fixture
def dispatcher() -> ScriptedDispatcher:
    return ScriptedDispatcher()


@pytest.fixture
def client(dispatcher: ScriptedDispatcher, loop: asyncio.AbstractEventLoop) -> JobClient:
    return JobClient(JOB_ID, dispatcher, loop)  # type: ignore[arg-type]


def ended(
    dispatcher: ScriptedDispatcher, status: JobStatus, failure: ErrorInfo | None = None
) -> None:
    dispatcher.status = dispatcher.end_status = status
    dispatcher.failure = failure


def page(offset: int, *batches: list[int], is_finished: bool = False) -> CollectedResults:
    pieces = tuple(CollectedPiece(0, 0, True, ipc(batch)) for batch in batches)
    return CollectedResults(offset, pieces, is_finished)


def ipc(values: list[int]) -> bytes:
    columns = RecordBatch.of_rows(INT, values).columns()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns.schema) as writer:
        writer.write_batch(columns)
    return sink.getvalue().to_pybytes()


def test_answers_come_from_the_control_thread(
    client: JobClient, dispatcher: ScriptedDispatcher
) -> None:
    assert client.get_job_id() == JOB_ID
    assert client.get_job_status().result() is JobStatus.RUNNING
    assert dispatcher.thread_names == {"control"}


def test_the_result_of_a_finished_job_prints_three_lines(
    client: JobClient, dispatcher: ScriptedDispatcher
) -> None:
    ended(dispatcher, JobStatus.FINISHED)
    result = client.get_job_execution_result().result()
    assert str(result) == (
        f"Program execution finished\nJob with JobID {'0' * 32} has finished.\nJob Runtime: 42 ms\n"
    )
    assert result.get_net_runtime() == 42
    assert result.get_all_accumulator_results() == {"lines": 3.0}
    assert result.get_accumulator_result("unknown") is None


def test_accumulators_are_those_of_now_also_while_the_job_runs(
    client: JobClient, dispatcher: ScriptedDispatcher
) -> None:
    assert client.get_accumulators().result() == {"lines": 2.0}
    assert client.get_job_status().result() is JobStatus.RUNNING
    ended(dispatcher, JobStatus.FINISHED)
    assert client.get_accumulators().result() == {"lines": 3.0}


def test_a_failed_job_raises_with_the_users_text_first(
    client: JobClient, dispatcher: ScriptedDispatcher
) -> None:
    text = "ValueError: no such airport (in operator 'Map', program.py, line 7)"
    failure = ErrorInfo("UserCodeError", text, "USER", True, "Traceback: ...")
    ended(dispatcher, JobStatus.FAILED, failure)
    future = client.get_job_execution_result()
    error = future.exception()
    assert isinstance(error, JobExecutionError)
    assert str(error).splitlines()[0] == text
    assert "Traceback: ..." in str(error)
    with pytest.raises(JobExecutionError):
        future.result()


def test_a_cancelled_job_raises_as_cancelled(client: JobClient) -> None:
    assert client.cancel().result() is None
    with pytest.raises(JobCancelledError):
        client.get_job_execution_result().result()


def test_answers_can_be_awaited(client: JobClient, dispatcher: ScriptedDispatcher) -> None:
    ended(dispatcher, JobStatus.FINISHED)

    async def ask() -> Any:
        return await client.get_job_execution_result()

    assert asyncio.run(ask()).get_net_runtime() == 42


def test_a_checkpoint_answers_with_its_id(client: JobClient) -> None:
    assert client.trigger_checkpoint().result() == 7


def test_savepoints_answer_with_their_paths(
    client: JobClient, dispatcher: ScriptedDispatcher
) -> None:
    assert client.trigger_savepoint("here").result() == "here/savepoint"
    assert client.trigger_savepoint().result() == "/savepoint"
    assert client.stop_with_savepoint(True, "there").result() == "there/stopped, drained"
    assert client.stop_with_savepoint(False).result() == "/stopped"
    native = SavepointFormatType.NATIVE
    assert client.trigger_savepoint("here", native).result() == "here/savepoint, native"
    assert client.stop_with_savepoint(False, "there", native).result() == "there/stopped, native"
    with pytest.raises(TypeError, match="name a path as savepoint_directory"):
        client.stop_with_savepoint(cast(bool, "there"))
    assert dispatcher.cancel_count == 0
    assert client.cancel_with_savepoint("here").result() == "here/savepoint"
    assert dispatcher.cancel_count == 1


def test_execute_waits_for_the_result(
    env: StreamExecutionEnvironment,
    executor: RecordingExecutor,
    client: JobClient,
    dispatcher: ScriptedDispatcher,
) -> None:
    executor.client = client
    dispatcher.status_answers = [JobStatus.INITIALIZING, JobStatus.RUNNING, JobStatus.FINISHED]
    env.from_collection([1]).print()
    assert env.execute("job").get_job_id() == JOB_ID


def test_a_busy_driver_is_no_end_of_a_job(
    client: JobClient, dispatcher: ScriptedDispatcher
) -> None:
    dispatcher.status_answers = [HeadraceError("no answer in time"), JobStatus.FINISHED]
    assert client.get_job_execution_result().result().get_net_runtime() == 42


def test_an_unknown_job_is_one_at_once(client: JobClient, dispatcher: ScriptedDispatcher) -> None:
    dispatcher.status_answers = [UnknownJobError(str(JOB_ID))]
    with pytest.raises(UnknownJobError):
        client.get_job_execution_result().result()


def test_asks_that_keep_failing_are_given_up(
    client: JobClient, dispatcher: ScriptedDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_client, "_PAUSE_AFTER_FAILURE_S", 0.0)
    dispatcher.status_answers = [HeadraceError("no answer in time")] * 11
    with pytest.raises(HeadraceError, match="no answer in time"):
        client.get_job_execution_result().result()


def test_waiting_ends_when_the_cluster_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_client, "_SLICE_S", 0.001)
    nobody: concurrent.futures.Future[int] = concurrent.futures.Future()
    future: CompletableFuture[int] = CompletableFuture(nobody, is_alive=lambda: False)
    with pytest.raises(ClusterClosedError):
        future.result()
    with pytest.raises(TimeoutError):
        CompletableFuture(nobody).result(timeout_s=0.01)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """As in a program that is run at a terminal: a shell starts what runs in its background with Ctrl-C ignored."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_cancels_the_job(
    env: StreamExecutionEnvironment,
    executor: RecordingExecutor,
    client: JobClient,
    dispatcher: ScriptedDispatcher,
) -> None:
    executor.client = client
    dispatcher.status_answers = [KeyboardInterrupt()]
    env.from_collection([1]).print()
    with pytest.raises(KeyboardInterrupt):
        env.execute()
    assert dispatcher.cancel_count == 1


# -- collected records


def test_records_come_in_order_until_the_job_has_finished(
    client: JobClient, dispatcher: ScriptedDispatcher
) -> None:
    ended(dispatcher, JobStatus.FINISHED)
    dispatcher.pages = [page(0), page(0, [1, 2]), page(1, [3], [4]), page(3, is_finished=True)]
    assert list(CloseableIterator(client, SINK_ID, INT)) == [1, 2, 3, 4]
    assert dispatcher.offsets == [0, 0, 1, 3]


def test_batches_that_were_seen_already_are_passed_over(
    client: JobClient, dispatcher: ScriptedDispatcher
) -> None:
    ended(dispatcher, JobStatus.FINISHED)
    dispatcher.pages = [page(0, [1]), page(0, [1], [2], is_finished=True)]
    assert list(CloseableIterator(client, SINK_ID, INT)) == [1, 2]


def test_a_batch_is_put_together_from_its_pieces_whoever_stands_between(
    client: JobClient, dispatcher: ScriptedDispatcher
) -> None:
    ended(dispatcher, JobStatus.FINISHED)
    batch, other = ipc([1, 2]), ipc([3])
    pieces = (
        CollectedPiece(0, 0, False, batch[:50]),
        CollectedPiece(1, 0, True, other),
        CollectedPiece(0, 1, False, batch[:70]),  # the first attempt failed and is repeated
        CollectedPiece(0, 1, True, batch[70:]),
    )
    dispatcher.pages = [CollectedResults(0, pieces, True)]
    assert list(CloseableIterator(client, SINK_ID, INT)) == [3, 1, 2]


def test_records_that_the_next_leader_of_the_job_does_not_have_are_said_to_be_lost(
    client: JobClient, dispatcher: ScriptedDispatcher
) -> None:
    first, second = page(0, [1, 2]), page(0, [3, 4], [5])
    dispatcher.pages = [
        msgspec.structs.replace(first, coordinator_id="a"),
        msgspec.structs.replace(second, coordinator_id="b"),
    ]
    records = CloseableIterator(client, SINK_ID, INT)
    assert records.take(2) == [1, 2]
    with pytest.raises(CollectedRecordsLostError, match=r"under another leader.*collect again"):
        records.next()


def test_a_limit_takes_the_first_records_and_ends_the_job(
    env: StreamExecutionEnvironment,
    executor: RecordingExecutor,
    client: JobClient,
    dispatcher: ScriptedDispatcher,
) -> None:
    executor.client = client
    dispatcher.pages = [page(0, [1, 2], [3, 4])]
    numbers = env.from_collection([1, 2, 3, 4], Types.INT())
    assert numbers.execute_and_collect(limit=3) == [1, 2, 3]
    assert dispatcher.cancel_count == 1


def test_a_limit_beyond_the_end_gives_what_there_is(
    client: JobClient, dispatcher: ScriptedDispatcher
) -> None:
    ended(dispatcher, JobStatus.FINISHED)
    dispatcher.pages = [page(0, [1], is_finished=True)]
    with CloseableIterator(client, SINK_ID, INT) as records:
        assert records.take(5) == [1]
    assert dispatcher.cancel_count == 0


def test_closing_ends_a_running_job_once(client: JobClient, dispatcher: ScriptedDispatcher) -> None:
    records = CloseableIterator(client, SINK_ID, INT)
    records.close()
    records.close()
    assert dispatcher.cancel_count == 1
    assert list(records) == []


def test_a_job_that_fails_raises_after_the_records_it_made(
    client: JobClient, dispatcher: ScriptedDispatcher
) -> None:
    dispatcher.pages = [page(0, [1], is_finished=True)]
    ended(dispatcher, JobStatus.FAILED, ErrorInfo("UserCodeError", "boom", "USER", True))
    records = CloseableIterator(client, SINK_ID, INT)
    assert records.next() == 1
    with pytest.raises(JobExecutionError, match="boom"):
        records.next()
    assert list(records) == []


def test_the_jobs_own_error_is_raised_where_its_results_are_gone(
    client: JobClient, dispatcher: ScriptedDispatcher
) -> None:
    dispatcher.pages = [RemoteError("UnknownJobError", "no such job")]
    ended(dispatcher, JobStatus.FAILED, ErrorInfo("UserCodeError", "boom", "USER", True))
    with pytest.raises(JobExecutionError, match="boom"):
        CloseableIterator(client, SINK_ID, INT).next()
