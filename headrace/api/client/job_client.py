"""JobClient: the handle of a submitted job, with the answers that it returns.

It calls the Dispatcher on the executor's event loop. Each answer is a CompletableFuture, which a program may wait for
or await. A JobExecutionResult is the answer of a job that FINISHED.
"""

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from headrace.core.barriers import SavepointFormatType
from headrace.core.errors import (
    CachedStreamLostError,
    HeadraceError,
    JobCancelledError,
    JobExecutionError,
    ProgramError,
)
from headrace.core.ids import JobId, OperatorId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.dispatcher import DispatcherGateway, JobResult
from headrace.gateways.errors import NotLeadingError, UnknownJobError
from headrace.gateways.job_master import CollectedResults, JobDetails

if TYPE_CHECKING:
    from headrace.api.client.job_state import JobState


T = TypeVar("T")

_SLICE_S: Final = 0.5
_WAIT_MAX_MS: Final = 5_000
"""Longest wait of one request for the end of the job: shorter than the timeout of any request."""
_PAUSE_AFTER_FAILURE_S: Final = 0.1
_FAILED_ASKS_MAX: Final = 10


class ClusterClosedError(HeadraceError):
    """Raised if the cluster was closed while a request was waiting for its answer."""

    recoverable = False

    def __init__(
        self,
        text: str = "the cluster was closed before it answered; a job that ran on it has ended",
    ) -> None:
        super().__init__(text)


class CompletableFuture(Generic[T]):
    """An answer that the cluster's control thread completes; usable in any thread, awaitable on any event loop.

    Example:
        >>> future = concurrent.futures.Future()
        >>> future.set_result("7")
        >>> CompletableFuture(future, int).result()
        7
    """

    def __init__(
        self,
        future: "concurrent.futures.Future[Any]",
        convert: Callable[[Any], T] | None = None,
        is_alive: Callable[[], bool] = lambda: True,
    ) -> None:
        """Wrap `future`; `is_alive` returns whether the cluster can still complete it."""
        self._future = future
        self._convert = convert
        self._is_alive = is_alive

    def cancel(self) -> bool:
        """Stop waiting; True if the answer had not come. The job itself goes on."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        return self._future.cancelled()

    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout_s: float | None = None) -> T:
        """Wait for the answer; raises the failure, or TimeoutError after `timeout_s` seconds."""
        return self._converted(self._wait(timeout_s))

    def exception(self) -> BaseException | None:
        """Wait; return the failure, or None for an answer."""
        try:
            self._converted(self._wait(None))
        except Exception as error:  # an error of the answer, or of its conversion
            return error
        return None

    def __await__(self) -> Generator[Any, Any, T]:
        value = yield from asyncio.wrap_future(self._future).__await__()
        return self._converted(value)

    def _wait(self, timeout_s: float | None) -> Any:
        """Wait in slices, to notice when the cluster was closed and nobody will answer any more."""
        waited_s = 0.0
        while timeout_s is None or waited_s + _SLICE_S < timeout_s:
            done, _ = concurrent.futures.wait([self._future], timeout=_SLICE_S)
            if done:
                return self._future.result()
            if not self._is_alive():
                raise ClusterClosedError
            waited_s += _SLICE_S
        return self._future.result(timeout_s - waited_s)

    def _converted(self, value: Any) -> T:
        return cast(T, value) if self._convert is None else self._convert(value)


class JobExecutionResult:
    """Id, net runtime and accumulators of a job that FINISHED."""

    def __init__(
        self, job_id: JobId, net_runtime_ms: int, accumulators: Mapping[str, Any] | None = None
    ) -> None:
        self._job_id = job_id
        self._net_runtime_ms = net_runtime_ms
        self._accumulators = dict(accumulators or {})

    def get_job_id(self) -> JobId:
        return self._job_id

    def get_net_runtime(self) -> int:
        """Return the net runtime in milliseconds."""
        return self._net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """Return an accumulator, or None if it is unknown."""
        return self._accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        return dict(self._accumulators)

    def __repr__(self) -> str:
        accumulators = f", accumulators={self._accumulators!r}" if self._accumulators else ""
        return f"JobExecutionResult(job {self._job_id}, {self._net_runtime_ms} ms{accumulators})"

    def __str__(self) -> str:
        return (
            "Program execution finished\n"
            f"Job with JobID {self._job_id} has finished.\n"
            f"Job Runtime: {self._net_runtime_ms} ms\n"
        )


class DetachedJobExecutionResult(JobExecutionResult):
    """Result of `execute` with `execution.attached` false: the job's id alone."""

    def __init__(self, job_id: JobId) -> None:
        super().__init__(job_id, 0)

    def get_net_runtime(self) -> int:
        """Raise ProgramError: the runtime of a detached job is not known."""
        raise self._unknown("net runtime")

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """Raise ProgramError: the accumulators of a detached job are not known."""
        raise self._unknown("accumulators")

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """Raise ProgramError: the accumulators of a detached job are not known."""
        raise self._unknown("accumulators")

    def _unknown(self, what: str) -> ProgramError:
        return ProgramError(
            f"the {what} of job {self._job_id} are not known, because execute() did not wait for it: set "
            f"execution.attached to true"
        )

    def __repr__(self) -> str:
        return f"DetachedJobExecutionResult(job {self._job_id})"

    def __str__(self) -> str:
        return f"Job has been submitted with JobID {self._job_id}\n"


class JobClient:
    """A submitted job. Every answer is a CompletableFuture: `result()` waits for it, and so does `await`.

    `dispatcher` is called on `loop` only; the methods here may be called from any other thread. `outlives_program`: the
    job runs on a cluster that does not end with this process, and goes on without it. `outlives_leader`: the cluster
    has high availability, and waiting for the job's end goes on while it has no leader.
    """

    def __init__(
        self,
        job_id: JobId,
        dispatcher: DispatcherGateway,
        loop: asyncio.AbstractEventLoop,
        *,
        outlives_program: bool = False,
        outlives_leader: bool = False,
    ) -> None:
        self.outlives_program: Final = outlives_program
        self._outlives_leader: Final = outlives_leader
        self._job_id = job_id
        self._dispatcher = dispatcher
        self._loop = loop
        self._has_told_end = False
        self._is_cancel_wanted = False

    @property
    def has_told_end(self) -> bool:
        """Return whether this client has told the program that the job has ended."""
        return self._has_told_end

    @property
    def is_cancel_wanted(self) -> bool:
        """Return whether the program has called `cancel`; the job may have ended in another way before."""
        return self._is_cancel_wanted

    def get_job_id(self) -> JobId:
        return self._job_id

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Return the job's current status."""
        return self._ask(self._dispatcher.request_job_status(self._job_id), self._told_status)

    def cancel(self) -> CompletableFuture[None]:
        """Cancel the job; the answer is complete once the cluster has accepted the request."""
        self._is_cancel_wanted = True
        return self._ask(self._dispatcher.cancel_job(self._job_id), _nothing)

    def cancel_at_once(self) -> CompletableFuture[None]:
        """Cancel the job; if it was cancelled before, also end the processes of tasks that have not returned."""
        self._is_cancel_wanted = True
        return self._ask(self._dispatcher.cancel_job(self._job_id, is_forced=True), _nothing)

    def get_job_details(self) -> CompletableFuture[JobDetails]:
        """Return the job with its vertices, subtasks and metrics as they are now."""
        return self._ask(self._dispatcher.request_job_details(self._job_id))

    def state(self) -> "JobState":
        """Return the state of the running job as tables: live, or from its last checkpoint."""
        # Imported late: few programs look into state.
        from headrace.api.client.job_state import JobState

        return JobState(self._job_id, self._dispatcher, self._ask)

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Return the job's current accumulators, or the final ones of a job that has ended."""
        return self._ask(self._dispatcher.request_accumulators(self._job_id), dict[str, Any])

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Return the result when the job ends.

        The answer fails with JobExecutionError or JobCancelledError if the job did not finish.
        """
        return self._ask(self._await_result(), self._told_result)

    def stop_with_savepoint(
        self,
        advance_to_end_of_event_time: bool,
        savepoint_directory: str | None = None,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> CompletableFuture[str]:
        """Take a savepoint and end the job with it.

        Return its path once the job has FINISHED and all output is committed. `advance_to_end_of_event_time` makes
        every event-time window fire before; no job can continue from such a savepoint. Without a directory the
        savepoint goes to `execution.checkpointing.savepoint-dir`. `format_type`: NATIVE is written and restored faster
        for large state in RocksDB, but only that backend can restore it.
        """
        if not isinstance(cast(object, advance_to_end_of_event_time), bool):
            raise TypeError(
                "stop_with_savepoint takes advance_to_end_of_event_time first, True or False, and not "
                f"{advance_to_end_of_event_time!r}: name a path as savepoint_directory"
            )
        return self._ask(
            self._dispatcher.stop_with_savepoint(
                self._job_id, savepoint_directory or "", advance_to_end_of_event_time, format_type
            )
        )

    def trigger_checkpoint(self) -> CompletableFuture[int]:
        """Take a checkpoint now, in addition to the periodic ones; return its id once it is complete.

        Source: Flink ClusterClient.triggerCheckpoint.
        """
        return self._ask(self._dispatcher.trigger_checkpoint(self._job_id))

    def trigger_savepoint(
        self,
        savepoint_directory: str | None = None,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> CompletableFuture[str]:
        """Take a savepoint while the job goes on; return its path once it is complete.

        A savepoint commits no output, and the job never restarts from it by itself. `format_type`: as in
        `stop_with_savepoint`.
        """
        return self._ask(
            self._dispatcher.trigger_savepoint(self._job_id, savepoint_directory or "", format_type)
        )

    def cancel_with_savepoint(
        self, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Take a savepoint, then cancel the job; return the savepoint's path.

        Records processed between the two are processed again by a job that starts from the savepoint.
        `stop_with_savepoint` is better: it processes no records after the savepoint.
        """
        return self._ask(self._cancel_with_savepoint(savepoint_directory or ""))

    async def _cancel_with_savepoint(self, savepoint_directory: str) -> str:
        path = await self._dispatcher.trigger_savepoint(
            self._job_id, savepoint_directory, SavepointFormatType.CANONICAL
        )
        self._is_cancel_wanted = True
        await self._dispatcher.cancel_job(self._job_id)
        return path

    def fetch_collected_results(
        self, operator_id: OperatorId, offset: int, max_piece_count: int
    ) -> CompletableFuture[CollectedResults]:
        """Return the records of a collect sink from piece `offset` on; the cluster forgets the earlier ones."""
        return self._ask(
            self._dispatcher.fetch_collected_results(
                self._job_id, operator_id, offset, max_piece_count
            )
        )

    def _ask(
        self, call: Coroutine[Any, Any, Any], convert: Callable[[Any], T] | None = None
    ) -> CompletableFuture[Any]:
        if self._loop.is_closed():
            call.close()
            raise ClusterClosedError
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        return CompletableFuture(future, convert, is_alive=self._loop.is_running)

    async def _await_result(self) -> JobResult:
        """Ask until the job has ended, in requests that each wait a limited time, because a job may run for months.

        Failed requests are repeated, at most `_FAILED_ASKS_MAX` in a row, because a busy driver may answer late.
        """
        failed_count = 0
        while True:
            try:
                status = await self._dispatcher.await_job_end(self._job_id, _WAIT_MAX_MS)
                failed_count = 0
                if self._outlives_leader and status is JobStatus.SUSPENDED:
                    # The job goes on under the next leader.
                    await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)
                elif status.is_terminal_state():
                    return await self._dispatcher.request_job_result(self._job_id)
            except (UnknownJobError, ClusterClosedError):
                raise
            except HeadraceError as error:
                is_waited_for = self._outlives_leader and isinstance(error, NotLeadingError)
                failed_count += not is_waited_for
                if failed_count > _FAILED_ASKS_MAX:
                    raise
                await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)

    def _told_status(self, status: JobStatus) -> JobStatus:
        # That a job FAILED does not say why.
        self._has_told_end |= status in (JobStatus.FINISHED, JobStatus.CANCELED)
        return status

    def _told_result(self, result: JobResult) -> JobExecutionResult:
        self._has_told_end = True
        return execution_result(result)

    def _repr_html_(self) -> str:
        # Imported late, as in `_ipython_display_`: only notebooks show jobs.
        from headrace.api.client.job_display import job_page

        return job_page(self)[0]

    def _ipython_display_(self) -> None:
        from headrace.api.client.job_display import JobDisplay

        JobDisplay(self).show()

    def __repr__(self) -> str:
        return f"JobClient({self._job_id})"


def execution_result(result: JobResult) -> JobExecutionResult:
    """Convert a job's end into a result, or raise its error."""
    match result.status:
        case JobStatus.FINISHED:
            return JobExecutionResult(result.job_id, result.net_runtime_ms, result.accumulators)
        case JobStatus.CANCELED:
            failure = "" if result.failure is None else result.failure.text.partition("\n")[0]
            raise JobCancelledError(str(result.job_id), failure)
        case _:
            job_id, text = str(result.job_id), _failure_text(result)
            if result.failure is not None and result.failure.lost_data_set is not None:
                lost = result.failure.lost_data_set
                raise CachedStreamLostError(job_id, result.name, text, lost)
            raise JobExecutionError(job_id, result.name, text)


def _failure_text(result: JobResult) -> str:
    if result.failure is None:
        return f"the job ended as {result.status.name}"
    text, trace = result.failure.text, result.failure.remote_traceback
    return f"{text}\n{trace}" if trace and trace not in text else text


def _nothing(_: object) -> None:
    return None
