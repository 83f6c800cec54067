"""Jobs of `execute_async` whose end a program never asked for: they end with it, which must not be silent.

`headrace run` exits with 1 then. In a plain Python process it is logged, and the exit code stays the program's own: a
library has no say in it but by `os._exit`, which would pass over the exit handlers of everybody else, and fail a test
run whose tests all passed. One list per process, as executors outlive environments. Source: PyFlink's FAQ, "Wait for
jobs to finish when executing jobs in mini cluster"; PyFlink cancels them without a word.
"""

import atexit
import logging
from typing import ClassVar, Final

from headrace.api.executors import active_executor
from headrace.api.job_client import JobClient
from headrace.core.errors import HeadraceError, JobCancelledError, JobExecutionError
from headrace.core.lifecycle import JobStatus

_LOG: Final = logging.getLogger(__name__)
_ANSWER_S: Final = 2.0
_NOT_WORTH_TELLING: Final = (JobStatus.FINISHED, JobStatus.CANCELLING, JobStatus.CANCELED)


class JobLeftBehindError(JobCancelledError):
    """The program ended before its job, and nobody waited for that."""

    def __init__(self, job_id: str, job_name: str, status: JobStatus) -> None:
        super().__init__(job_id)
        self.args = (
            f"job '{job_name}' ({job_id}) was still {status.name} when the program ended, and is cancelled: wait "
            "for its end with client.get_job_execution_result().result(), where client is what execute_async returned",
        )


class _Submitted:
    jobs: ClassVar[list[tuple[JobClient, str]]] = []


def remember_job(client: JobClient, job_name: str) -> None:
    """Remember a job that the program does not wait for yet.

    Where nobody else looks at the program's end, as `headrace run` does, what is left is logged at the process's.
    """
    untold = [(one, name) for one, name in _Submitted.jobs if not one.has_told_end]
    _Submitted.jobs = [*untold, (client, job_name)]
    if active_executor() is None:
        # Exits run last in, first out: this one must come before the Spark session's own, which ends its jobs.
        atexit.unregister(_log_left_jobs)
        atexit.register(_log_left_jobs)


def forget_jobs() -> None:
    """Begin anew: what was submitted so far belongs to another program."""
    _Submitted.jobs = []


def left_jobs() -> list[JobLeftBehindError | JobExecutionError]:
    """Return an error for each job that still runs, or has failed, and whose end the program has not been told."""
    jobs, _Submitted.jobs = _Submitted.jobs, []
    found = (_error_of(client, name) for client, name in jobs if not client.has_told_end)
    return [error for error in found if error is not None]


def _error_of(client: JobClient, job_name: str) -> JobLeftBehindError | JobExecutionError | None:
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
        _LOG.debug("asking how '%s' ended: %s", job_name, error)
    return None


def _log_left_jobs() -> None:
    for error in left_jobs():
        _LOG.error("%s", error)
