"""Handles Ctrl-C while a program waits for a job.

The job is cancelled; the program waits a little, says for what, and then ends by force.
"""

import logging
from typing import Final

from headrace.api.client.job_client import JobClient
from headrace.core.errors import HeadraceError
from headrace.gateways.job_master import JobDetails

_LOG: Final = logging.getLogger(__name__)

PATIENCE_S: Final = 2.0
"""How long cancelled tasks may take to return before their processes are ended."""
_SILENT_S: Final = 0.5
_COMMIT_S: Final = 10.0
_ANSWER_S: Final = 2.0


def end_interrupted_job(client: JobClient, patience_s: float = PATIENCE_S) -> None:
    """Cancel the job and wait a bounded time, so that nothing is left running; a second Ctrl-C cuts the wait short.

    A task whose function does not return after `patience_s` is ended with its process. Output that is being
    committed has no task left to end, and longer to finish.
    """
    try:
        client.cancel().result(_ANSWER_S)
        if _ends_within(client, min(_SILENT_S, patience_s)):
            return
        waited_for = unfinished_tasks(client.get_job_details().result(_ANSWER_S))
        if not waited_for:
            _LOG.warning("the job is cancelled as soon as it has committed its output")
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


def unfinished_tasks(details: JobDetails) -> str:
    """Name the vertices whose subtasks have not ended: `Map (2 of 3)`; empty where all have."""
    counts = [
        (vertex, sum(not subtask.state.is_terminal for subtask in vertex.subtasks))
        for vertex in details.vertices
    ]
    return ", ".join(
        f"'{vertex.name}' ({count} of {vertex.parallelism})" for vertex, count in counts if count
    )


def _end_by_force(client: JobClient) -> None:
    try:
        client.cancel_at_once().result(_ANSWER_S)
    except (HeadraceError, TimeoutError) as error:
        _LOG.debug("ending by force: %s", error)
        return
    _ends_within(client, PATIENCE_S)


def _ends_within(client: JobClient, timeout_s: float) -> bool:
    result = client.get_job_execution_result()
    try:
        result.result(timeout_s)
    except TimeoutError:
        result.cancel()
        return False
    except Exception:  # whichever way it ended, it has ended
        return True
    return True
