"""Ctrl-C, against a Dispatcher whose job does not end when it is cancelled."""

import asyncio
import logging

import pytest

from headrace import Types
from headrace.api.client import collected_records
from headrace.api.client.collected_records import CloseableIterator
from headrace.api.client.job_client import JobClient
from headrace.api.client.program_end import end_interrupted_job, unfinished_tasks
from headrace.core.ids import JobId, JobVertexId, OperatorId
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.core.record_batch import BatchType
from headrace.gateways.dispatcher import JobResult
from headrace.gateways.job_master import JobDetails, SubtaskDetails, VertexDetails
from headrace.gateways.messages import Acknowledge

JOB_ID = JobId(bytes(16))


def details(*states: ExecutionState) -> JobDetails:
    subtasks = tuple(SubtaskDetails(n, 0, state, None, {}) for n, state in enumerate(states))
    vertex = VertexDetails(JobVertexId(bytes(16)), "Map", len(subtasks), subtasks)
    return JobDetails(JOB_ID, "stuck", JobStatus.CANCELLING, {}, (vertex,))


class StuckDispatcher:
    """Its job ends at the cancellation that `ends_when_forced` says."""

    def __init__(self, ends_when_forced: bool) -> None:
        self.cancellations: list[bool] = []
        self.ends_when_forced = ends_when_forced
        self.ended = asyncio.Event()

    async def cancel_job(self, job_id: JobId, is_forced: bool = False) -> Acknowledge:
        self.cancellations.append(is_forced)
        if is_forced is self.ends_when_forced:
            self.ended.set()
        return Acknowledge()

    async def await_job_end(self, job_id: JobId, wait_max_ms: int) -> JobStatus:
        await self.ended.wait()
        return JobStatus.CANCELED

    async def request_job_status(self, job_id: JobId) -> JobStatus:
        return JobStatus.CANCELED if self.ended.is_set() else JobStatus.CANCELLING

    async def request_job_result(self, job_id: JobId) -> JobResult:
        return JobResult(job_id, "stuck", JobStatus.CANCELED, 1, {}, None)

    async def request_job_details(self, job_id: JobId) -> JobDetails:
        return details(ExecutionState.CANCELING, ExecutionState.CANCELED)


def client(dispatcher: StuckDispatcher, loop: asyncio.AbstractEventLoop) -> JobClient:
    return JobClient(JOB_ID, dispatcher, loop)  # type: ignore[arg-type]


def test_a_job_that_ends_when_it_is_cancelled_is_not_forced(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher = StuckDispatcher(ends_when_forced=False)
    end_interrupted_job(client(dispatcher, loop))
    assert dispatcher.cancellations == [False]
    assert caplog.records == []


def test_a_function_that_does_not_return_is_named_waited_for_and_ended_by_force(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher = StuckDispatcher(ends_when_forced=True)
    with caplog.at_level(logging.WARNING):
        end_interrupted_job(client(dispatcher, loop), patience_s=0.02)
    assert dispatcher.cancellations == [False, True]
    (line,) = caplog.messages
    assert "'Map' (1 of 2)" in line and "Ctrl-C again" in line


def test_tasks_that_have_ended_are_not_waited_for() -> None:
    assert unfinished_tasks(details(ExecutionState.CANCELED, ExecutionState.FINISHED)) == ""


def test_a_second_interruption_forces_the_end_without_waiting(
    loop: asyncio.AbstractEventLoop,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dispatcher = StuckDispatcher(ends_when_forced=True)
    interrupted = client(dispatcher, loop)

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(interrupted, "get_job_details", interrupt)
    end_interrupted_job(interrupted, patience_s=0.02)
    assert dispatcher.cancellations == [False, True]
    assert caplog.messages == ["interrupted again: processes of the job are ended at once"]


def test_interrupted_records_end_their_job_the_same_way(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher = StuckDispatcher(ends_when_forced=True)
    monkeypatch.setattr(
        collected_records, "end_interrupted_job", lambda job: end_interrupted_job(job, 0.02)
    )
    records = CloseableIterator(
        client(dispatcher, loop), OperatorId(bytes(16)), BatchType(Types.INT())
    )
    with pytest.raises(KeyboardInterrupt), records:
        raise KeyboardInterrupt
    assert dispatcher.cancellations == [False, True]
