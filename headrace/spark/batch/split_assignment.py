"""Assigns the splits of a bounded source to its subtasks in the driver, before any of them runs.

The source's own enumerator finds and assigns the splits; each subtask in turn requests one until there are none.
A repeated attempt of a task gets the same splits again.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.cluster.job_master.coordinators.source_coordinator import create_source_coordinator
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId, JobId, ResourceId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.functions.source import (
    NoMoreSplits,
    RegisterReader,
    RequestSplit,
    event_bytes,
    event_to_reader,
)
from headrace.graph.job_graph import JobVertex

_LOG: Final = logging.getLogger(__name__)
_NOWHERE: Final = TaskManagerLocation(ResourceId("driver"), "", 0, None, "")


class _Done:
    """Handle of a call that was made at once."""

    def cancel(self) -> None:
        """Do nothing: the call has been made."""


class _AtOnce:
    """Implements LaterCalls on the caller's thread; blocking is allowed there."""

    def schedule(self, delay_ms: float, action: Callable[[], None], /) -> _Done:
        action()
        return _Done()

    def call_blocking(
        self,
        name: str,
        work: Callable[[], Any],
        handler: Callable[[Any, BaseException | None], None],
        /,
    ) -> None:
        try:
            result, error = work(), None
        except Exception as failure:  # whatever it is, the connector's handler judges it
            result, error = None, failure
        handler(result, error)


def assigned_splits(
    job_id: JobId, vertex: JobVertex, settings: Settings
) -> tuple[tuple[bytes, ...], ...]:
    """Return for each subtask the events that the head operator's enumerator sends to its reader."""
    source = vertex.operators[0]
    events: list[list[bytes]] = [[] for _ in range(vertex.parallelism)]
    is_open = [True] * vertex.parallelism

    def send_event(subtask_index: int, payload: bytes) -> None:
        events[subtask_index].append(payload)
        if isinstance(event_to_reader(payload), NoMoreSplits):
            is_open[subtask_index] = False

    def fail_job(error: BaseException) -> None:
        raise error

    coordinator = create_source_coordinator(
        CoordinatorContext(
            job_id=job_id,
            operator_id=source.operator_id,
            operator_name=source.name,
            parallelism=vertex.parallelism,
            settings=settings,
            send_event=send_event,
            run_async=lambda call: call(),
            fail_job=fail_job,
            later=_AtOnce(),
            location=source.location,
        ),
        source.coordinator_payload,
    )
    coordinator.start()
    attempts = [
        ExecutionAttemptId(job_id, ExecutionVertexId(vertex.vertex_id, index), 0)
        for index in range(vertex.parallelism)
    ]
    for attempt in attempts:
        coordinator.handle_event(attempt, event_bytes(RegisterReader()))
        coordinator.subtask_ready(attempt, _NOWHERE)
    while any(is_open):
        before = sum(map(len, events))
        for index, attempt in enumerate(attempts):
            if is_open[index]:
                coordinator.handle_event(attempt, event_bytes(RequestSplit()))
        if sum(map(len, events)) == before:
            raise ProgramError(
                f"the source of operator '{source.name}' assigns splits only to running readers, but BATCH mode "
                f"needs all splits before the readers run: run the job in STREAMING mode, which gives the same final "
                f"results"
            )
    _LOG.debug("splits of '%s': %s", source.name, [len(each) - 1 for each in events])
    return tuple(map(tuple, events))
