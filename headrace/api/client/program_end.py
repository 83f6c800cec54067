"""Handles the end of a program that has jobs: Ctrl-C, SIGTERM, jobs not awaited and sinks not executed.

Ctrl-C while a program waits for a job cancels the job; tasks that do not return soon are ended with their processes.
SIGTERM ends the program in order, with its jobs, workers and Spark; jobs on other clusters go on. By default Python
would end at once, without a log of the checkpoint to continue from.

A job of `execute_async` ends with its program. If the program never asked for the job's end, that is an error; a sink
or a whole program that was never executed is one too. `headrace run` then exits with 1. A plain Python process logs it
at its exit and keeps its own exit code: a library could change that only by `os._exit`, which skips the exit handlers
of others. There is one record per process, because the environments of a program may be gone when it ends.
Source: PyFlink's FAQ, "Wait for jobs to finish when executing jobs in mini cluster"; PyFlink cancels them silently.
"""

import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, ClassVar, Final

from headrace.api.executors import active_executor
from headrace.core.errors import HeadraceError, JobCancelledError, JobExecutionError
from headrace.core.lifecycle import JobStatus

if TYPE_CHECKING:
    from headrace.api.client.job_client import JobClient
    from headrace.api.transformations import OperatorTransformation
    from headrace.gateways.job_master import JobDetails

_LOG: Final = logging.getLogger(__name__)

PATIENCE_S: Final = 2.0
"""Time in which cancelled tasks must return before their processes are ended."""
_SILENT_S: Final = 0.5
_COMMIT_S: Final = 10.0
_ANSWER_S: Final = 2.0
_NOT_WORTH_TELLING: Final = (JobStatus.FINISHED, JobStatus.CANCELLING, JobStatus.CANCELED)
EXIT_TERMINATED: Final = 128 + signal.SIGTERM


def end_interrupted_job(client: "JobClient", patience_s: float = PATIENCE_S) -> None:
    """Cancel the job and wait a bounded time, so that nothing is left running; a second Ctrl-C cuts the wait short.

    A task whose function does not return after `patience_s` is ended with its process. A job whose tasks have ended but
    whose output is still being committed may take longer.
    """
    try:
        client.cancel().result(_ANSWER_S)
        if _ends_within(client, min(_SILENT_S, patience_s)):
            return
        waited_for = unfinished_tasks(client.get_job_details().result(_ANSWER_S))
        if not waited_for:
            _LOG.warning("the job is cancelled; it ends once its output is committed")
            _ends_within(client, _COMMIT_S)
            return
        _LOG.warning(
            "waiting %g s for functions to return: %s; Ctrl-C again ends their processes at once",
            patience_s,
            waited_for,
        )
        if _ends_within(client, patience_s - min(_SILENT_S, patience_s)):
            return
    except KeyboardInterrupt:
        _LOG.warning("interrupted again: processes of the job are ended at once")
    except (HeadraceError, TimeoutError) as error:
        _LOG.debug("cancelling: %s", error)
        return
    _end_by_force(client)


def leave_interrupted_job(client: "JobClient") -> None:
    """Cancel the job of an interrupted program, or log how to end it if it goes on without the program."""
    if client.outlives_program:
        job_id = client.get_job_id()
        _LOG.warning("job %s goes on: 'headrace cancel %s' ends it", job_id, job_id)
        return
    end_interrupted_job(client)


def unfinished_tasks(details: "JobDetails") -> str:
    """Name the vertices whose subtasks have not ended: `Map (2 of 3)`; empty if all have."""
    counts = [
        (vertex, sum(not subtask.state.is_terminal for subtask in vertex.subtasks))
        for vertex in details.vertices
    ]
    return ", ".join(
        f"'{vertex.name}' ({count} of {vertex.parallelism})" for vertex, count in counts if count
    )


def _end_by_force(client: "JobClient") -> None:
    try:
        client.cancel_at_once().result(_ANSWER_S)
    except (HeadraceError, TimeoutError) as error:
        _LOG.debug("ending by force: %s", error)
        return
    _ends_within(client, PATIENCE_S)


def _ends_within(client: "JobClient", timeout_s: float) -> bool:
    result = client.get_job_execution_result()
    try:
        result.result(timeout_s)
    except TimeoutError:
        result.cancel()
        return False
    except Exception:  # whichever way it ended, it has ended
        return True
    return True


class JobLeftBehindError(JobCancelledError):
    """Raised if a program ends before its job without having waited for the job's end."""

    def __init__(self, job_id: str, job_name: str, status: JobStatus) -> None:
        super().__init__(job_id)
        self.args = (
            f"job '{job_name}' ({job_id}) was still {status.name} when the program ended, and is cancelled: wait "
            "for its end with client.get_job_execution_result().result(), where client is what execute_async returned",
        )


class _Submitted:
    jobs: ClassVar["list[tuple[JobClient, str]]"] = []


def remember_job(client: "JobClient", job_name: str) -> None:
    """Remember a job that the program does not wait for yet, unless the job outlives the program.

    Unless `headrace run` handles the end of the program, jobs that are left are logged at the end of the process.
    """
    if client.outlives_program:
        return
    untold = [(one, name) for one, name in _Submitted.jobs if not one.has_told_end]
    _Submitted.jobs = [*untold, (client, job_name)]
    if active_executor() is None:
        # Exits run last in, first out: this one must come before the Spark session's own, which ends its jobs.
        atexit.unregister(_log_left_jobs)
        atexit.register(_log_left_jobs)


def forget_jobs() -> None:
    """Forget all jobs: those submitted so far belong to another program."""
    _Submitted.jobs = []


def left_jobs() -> list[JobLeftBehindError | JobExecutionError]:
    """Return an error for each job that still runs or has failed without the program having been told."""
    jobs, _Submitted.jobs = _Submitted.jobs, []
    found = (_error_of(client, name) for client, name in jobs if not client.has_told_end)
    return [error for error in found if error is not None]


def await_left_jobs() -> list[JobExecutionError]:
    """Wait for the jobs whose end the program has not been told; return an error for each that has FAILED."""
    jobs, _Submitted.jobs = _Submitted.jobs, []
    ends = [client.get_job_execution_result() for client, _ in jobs if not client.has_told_end]
    errors = [end.exception() for end in ends]
    return [error for error in errors if isinstance(error, JobExecutionError)]


def _error_of(client: "JobClient", job_name: str) -> JobLeftBehindError | JobExecutionError | None:
    try:
        status = client.get_job_status().result(_ANSWER_S)
        if status in _NOT_WORTH_TELLING:
            return None
        if not status.is_terminal_state():
            if client.is_cancel_wanted:
                return None
            return JobLeftBehindError(str(client.get_job_id()), job_name, status)
        client.get_job_execution_result().result(_ANSWER_S)
    except JobExecutionError as failure:
        return failure
    except (HeadraceError, TimeoutError) as error:
        _LOG.debug("waiting for the end of '%s' failed: %s", job_name, error)
    return None


def _log_left_jobs() -> None:
    for error in left_jobs():
        _LOG.error("%s", error)


class _LeftOver:
    sink: ClassVar["OperatorTransformation | None"] = None
    operator: ClassVar["OperatorTransformation | None"] = None
    has_plan: ClassVar[bool] = False


def program_begins() -> None:
    """Forget all operators: those made so far belong to another program."""
    _LeftOver.sink = _LeftOver.operator = None
    _LeftOver.has_plan = False


def operator_added(operator: "OperatorTransformation") -> None:
    """Record an operator that belongs to no job yet."""
    # Imported late: commands end programs that may have no graph, and it brings Arrow.
    from headrace.graph.stream_graph import NodeRole

    if operator.role is NodeRole.SINK:
        _LeftOver.sink = operator
    else:
        _LeftOver.operator = operator
    if active_executor() is None:
        # Nobody else looks at the program's end, as `headrace run` does.
        atexit.unregister(_log_unexecuted)
        atexit.register(_log_unexecuted)


def plan_made() -> None:
    """Record that the program so far was executed, or that its plan was shown."""
    _LeftOver.sink = _LeftOver.operator = None
    _LeftOver.has_plan = True


def unexecuted_operator() -> "OperatorTransformation | None":
    """Return the last sink since the last plan, if any; in a program without any plan its last operator."""
    if _LeftOver.sink is not None:
        return _LeftOver.sink
    return None if _LeftOver.has_plan else _LeftOver.operator


def unexecuted_text(operator: "OperatorTransformation") -> str:
    """Return the message for an operator that was never executed, with its place in the program."""
    return f"the program ended without running '{operator.name}' ({operator.location}): call env.execute()"


def without_job_text() -> str:
    """Return the message for a program that ended without a job."""
    operator = unexecuted_operator()
    if operator is not None:
        return unexecuted_text(operator)
    return "the program ended without a job: it never called env.execute()"


def _log_unexecuted() -> None:
    operator = unexecuted_operator()
    # A program that ended by an exception did not get to it.
    if operator is not None and getattr(sys, "last_value", None) is None:
        _LOG.warning("%s", unexecuted_text(operator))


class Terminated(SystemExit):
    """Raised once in the main thread after SIGTERM."""

    def __init__(self) -> None:
        super().__init__(EXIT_TERMINATED)


OWN_JOBS_END: Final = "the jobs end, and their last checkpoints are kept"
"""Fate of jobs whose cluster ends with their program."""
JOBS_GO_ON: Final = "the jobs go on from their last checkpoints as soon as another driver leads"
"""Fate of the jobs of a cluster with high availability, whose driver ends."""


def fate_of_jobs(jobs: "Sequence[JobClient]", *, is_elsewhere: bool) -> str:
    """Return the effect of SIGTERM on the submitted jobs of a program; empty if the program knows the end of all.

    `is_elsewhere`: the jobs run on clusters in other processes.
    """
    left = [job for job in jobs if not job.has_told_end]
    staying = [str(job.get_job_id()) for job in left if job.outlives_program]
    ending = [str(job.get_job_id()) for job in left if not job.outlives_program]
    parts: list[str] = []
    if ending and is_elsewhere:
        # Only `execution.shutdown-on-attached-exit` ties jobs there to their client.
        are = "is" if len(ending) == 1 else "are"
        parts.append(
            f"{_named(ending)} {are} cancelled, as execution.shutdown-on-attached-exit says"
        )
    elif ending:
        parts.append(OWN_JOBS_END)
    if len(staying) == 1:
        parts.append(f"{_named(staying)} goes on: 'headrace cancel {staying[0]}' ends it")
    elif staying:
        parts.append(f"{_named(staying)} go on: 'headrace cancel ID' ends one")
    return "; ".join(parts)


def _named(job_ids: list[str]) -> str:
    return f"job {job_ids[0]}" if len(job_ids) == 1 else f"jobs {', '.join(job_ids)}"


def end_in_order_when_terminated(
    fate: Callable[[], str] = lambda: OWN_JOBS_END,
) -> Callable[[], None]:
    """Raise Terminated at the first SIGTERM, unless the program handles it; return a function that undoes this.

    `fate` returns what happens to the jobs, for the log; it is called in the signal handler, and must take no lock.
    Later SIGTERMs are ignored. Has no effect outside the main thread.
    """
    if not _is_main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return _nothing
    signal.signal(signal.SIGTERM, _raise_once)
    _ending.fate = fate
    return _take_back


def ignore_termination() -> Callable[[], None]:
    """Ignore SIGTERM if it would end the program in order; return a function that undoes this.

    For code that already ends jobs, workers or Spark and must not be interrupted. Has no effect outside the main
    thread, because signals interrupt no other thread.
    """
    if not _is_main_thread() or signal.getsignal(signal.SIGTERM) is not _raise_once:
        return _nothing
    signal.signal(signal.SIGTERM, _ends_already)
    return _resume


class _Ending:
    def __init__(self) -> None:
        self.reason = ""
        self.fate: Callable[[], str] = lambda: OWN_JOBS_END


_ending: Final = _Ending()


def end_program(reason: str) -> None:
    """End the program in order, as SIGTERM does, and log the reason; callable from any thread."""
    _ending.reason = reason
    os.kill(os.getpid(), signal.SIGTERM)


def _raise_once(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, _ends_already)
    _LOG.warning("%s", _ending.reason or ": ".join(filter(None, ("terminated", _ending.fate()))))
    raise Terminated


def _ends_already(_number: int, _frame: FrameType | None) -> None:
    pass


def _resume() -> None:
    if _is_main_thread() and signal.getsignal(signal.SIGTERM) is _ends_already:
        signal.signal(signal.SIGTERM, _raise_once)


def _take_back() -> None:
    if _is_main_thread() and signal.getsignal(signal.SIGTERM) in (_raise_once, _ends_already):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _is_main_thread() -> bool:
    """Return whether this is the main thread, the only one in which Python allows signal handlers to be set."""
    return threading.current_thread() is threading.main_thread()


def _nothing() -> None:
    pass
