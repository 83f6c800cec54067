"""What is said of a job's checkpoints as it is submitted: which cannot be, and which lose output without an error."""

import logging
from typing import Final

from headrace.checkpoint.options import AFTER_TASKS_FINISH, INTERVAL
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.graph.exchange_mode import BATCH_SHUFFLE_MODE
from headrace.graph.job_graph import JobGraph

_LOG: Final = logging.getLogger(__name__)


def check_checkpoints(graph: JobGraph, settings: Settings) -> None:
    """Raise ProgramError for checkpoints that could never be taken; warn where last output would not be committed."""
    if settings.duration_ms(INTERVAL) <= 0:
        return
    if graph.has_cached_streams:
        raise ProgramError(
            "a job that makes or reads a cached stream runs one task after the other, and checkpoints need all of them "
            f"at once: unset {INTERVAL.key} for it"
        )
    if any(edge.result_type.traits.is_blocking for edge in graph.edges):
        raise ProgramError(
            f"{BATCH_SHUFFLE_MODE.key} {settings.get_option(BATCH_SHUFFLE_MODE)} runs one task after the other, and "
            f"checkpoints need all of them at once: unset {INTERVAL.key}, or let exchanges be pipelined"
        )
    committing = [
        operator.name
        for vertex in graph.vertices
        for operator in vertex.operators
        if operator.committer
    ]
    if committing and not settings.get_option(AFTER_TASKS_FINISH):
        _LOG.warning(
            "%s is false: the tasks of job '%s' finish without a last checkpoint, so what %s wrote since the one "
            "before will not be committed, although the job ends as FINISHED. Unset the setting, or end the job by "
            "stop-with-savepoint",
            AFTER_TASKS_FINISH.key,
            graph.name,
            " and ".join(f"'{name}'" for name in committing),
        )
