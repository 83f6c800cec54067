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
    """The cluster was closed while an answer of it was awaited."""

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
        """`is_alive` says whether anybody is there to complete the future."""
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
        """Wait for the answer; raises the failure, or TimeoutError where `timeout_s` has passed."""
        return self._converted(self._wait(timeout_s))

    def exception(self) -> BaseException | None:
        """Wait; return the failure, or None for an answer."""
        try:
            self._converted(self._wait(None))
        except Exception as error:  # of the answer, or what the conversion made of it
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
    """Id, net runtime and accumulators of a job that ended well."""

    def __init__(
        self, job_id: JobId, net_runtime_ms: int, accumulators: Mapping[str, Any] | None = None
    ) -> None:
        self._job_id = job_id
        self._net_runtime_ms = net_runtime_ms
        self._accumulators = dict(accumulators or {})

    def get_job_id(self) -> JobId:
        return self._job_id

    def get_net_runtime(self) -> int:
        """Milliseconds."""
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
    """Result of `execute` where nobody waits for the job: its id alone. Source: Flink DetachedJobExecutionResult."""

    def __init__(self, job_id: JobId) -> None:
        super().__init__(job_id, 0)

    def get_net_runtime(self) -> int:
        """Raise ProgramError."""
        raise self._unknown("net runtime")

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """Raise ProgramError."""
        raise self._unknown("accumulators")

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """Raise ProgramError."""
        raise self._unknown("accumulators")

    def _unknown(self, what: str) -> ProgramError:
        return ProgramError(
            f"the {what} of job {self._job_id} are not known, as nobody waits for it: leave execution.attached at true"
        )

    def __repr__(self) -> str:
        return f"DetachedJobExecutionResult(job {self._job_id})"

    def __str__(self) -> str:
        return f"Job has been submitted with JobID {self._job_id}\n"


class JobClient:
    """A submitted job. Every answer is a CompletableFuture: `result()` waits for it, and so does `await`.

    `dispatcher` is called on `loop` only; the methods here may be called from any other thread. `outlives_program`: the
    job runs on a cluster that does not end with this process, and goes on without it. `outlives_leader`: the cluster
    has high availability, and whoever waits for the job's end waits also while nobody leads.
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
        """Return whether the program has seen the job's end here."""
        return self._has_told_end

    @property
    def is_cancel_wanted(self) -> bool:
        """Return whether the program has asked for the job's end by `cancel`; it may have ended otherwise before."""
        return self._is_cancel_wanted

    def get_job_id(self) -> JobId:
        return self._job_id

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """The job's status now."""
        return self._ask(self._dispatcher.request_job_status(self._job_id), self._told_status)

    def cancel(self) -> CompletableFuture[None]:
        """Cancel the job; done when the cluster has taken the request."""
        self._is_cancel_wanted = True
        return self._ask(self._dispatcher.cancel_job(self._job_id), _nothing)

    def cancel_at_once(self) -> CompletableFuture[None]:
        """Cancel the job; tasks that were cancelled before and have not returned are ended with their processes."""
        self._is_cancel_wanted = True
        return self._ask(self._dispatcher.cancel_job(self._job_id, is_forced=True), _nothing)

    def get_job_details(self) -> CompletableFuture[JobDetails]:
        """The job with its vertices, subtasks and metrics as they are now."""
        return self._ask(self._dispatcher.request_job_details(self._job_id))

    def state(self) -> "JobState":
        """Return the state of the running job as tables: live, or from its last checkpoint."""
        # Imported late: few programs look into state.
        from headrace.api.client.job_state import JobState

        return JobState(self._job_id, self._dispatcher, self._ask)

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Accumulators of the job as they stand; of a job that has ended, as it left them."""
        return self._ask(self._dispatcher.request_accumulators(self._job_id), dict[str, Any])

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """The result when the job ends; fails with JobExecutionError or JobCancelledError when it did not finish."""
        return self._ask(self._await_result(), self._told_result)

    def stop_with_savepoint(
        self,
        advance_to_end_of_event_time: bool,
        savepoint_directory: str | None = None,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> CompletableFuture[str]:
        """Take a savepoint and end the job with it: its path, once the job has FINISHED and all output is committed.

        `advance_to_end_of_event_time` lets every window fire before; such a savepoint is an end, no job can go on from
        it. Without a directory the savepoint goes where `execution.checkpointing.savepoint-dir` says. `format_type`:
        NATIVE is sooner written and restored where state is large in RocksDB, and restored by that backend alone.
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
        """Take a checkpoint now, besides the periodic ones: its id, once it is complete.

        Source: Flink ClusterClient.triggerCheckpoint.
        """
        return self._ask(self._dispatcher.trigger_checkpoint(self._job_id))

    def trigger_savepoint(
        self,
        savepoint_directory: str | None = None,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> CompletableFuture[str]:
        """Take a savepoint while the job goes on: its path, once it is complete.

        It commits no output, and the job never restarts from it by itself. `format_type`: as in `stop_with_savepoint`.
        """
        return self._ask(
            self._dispatcher.trigger_savepoint(self._job_id, savepoint_directory or "", format_type)
        )

    def cancel_with_savepoint(
        self, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Take a savepoint, then cancel the job: its path. What comes between the two is done again from the savepoint.

        `stop_with_savepoint` is the better way: with it nothing comes between.
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
        """Records of a collect sink from piece `offset` on; those before it are forgotten by the cluster."""
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
        """Ask until the job has ended. It may run for months, but no request may wait so long: each waits for a while.

        Asks that fail are repeated, at most `_FAILED_ASKS_MAX` in a row: a busy driver is no end of a job.
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
    """Turn a job's end into a result, or raise what ended it."""
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
