"""RunAnswer: the document that `headrace run --json` prints at the end of its program."""

import contextlib
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from headrace.cli.logs import report_failure
from headrace.core.error_text import describe
from headrace.core.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.api.client.job_client import JobClient

_ASK_TIMEOUT_S: Final = 10.0


class RunAnswer:
    """Collects the jobs and errors of a program."""

    def __init__(self) -> None:
        self._clients: list[JobClient] = []
        self._jobs: list[dict[str, str]] = []
        self._errors: list[str] = []

    def take_job(self, client: "JobClient") -> None:
        """Remember a job that was submitted."""
        self._clients.append(client)

    def take_error(self, error: BaseException) -> int:
        """Remember an error and print it; return the exit code."""
        self._errors.append(describe(error, wants_details=False)[0])
        return report_failure(error)

    def ask_jobs(self) -> None:
        """Ask for names and states of the jobs, while their cluster answers."""
        self._jobs = [_job_facts(client) for client in self._clients]

    def document(self, code: int) -> dict[str, Any]:
        """Return the document."""
        return {"exit-code": code, "jobs": self._jobs, "errors": self._errors}


def _job_facts(client: "JobClient") -> dict[str, str]:
    facts = {"job-id": str(client.get_job_id())}
    with contextlib.suppress(HeadraceError, TimeoutError):
        details = client.get_job_details().result(_ASK_TIMEOUT_S)
        facts |= {"name": details.name, "state": details.status.name}
    return facts


@contextmanager
def only_answer_on_standard_output() -> Generator[None, None, None]:
    """Have all that is printed meanwhile on standard error, by Spark's JVM and other children as well."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
