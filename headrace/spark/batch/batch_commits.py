"""BatchCommits: commits the prepared output of a BATCH job's sinks once, or deletes it.

    stages run ──all have finished──► CommitTurn ──► commits, one sink after another ──► the rest is deleted
         └──── failed, cancelled ────────┴──────────────────────────────────────────────────────▲

Remaining output may come from attempts that did not report: of a worker that was killed, or that Spark did not count.
So it is found by the ids of job and sink, after all tasks of the job have ended.
Source: Flink GlobalCommitterOperator.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Final, Self

from py4j.protocol import Py4JError
from pyspark import SparkContext

from headrace.cluster.job_master.checkpointing.commits.sink_commits import (
    COMMIT_RETRIES,
    CommitFailedError,
    commit_pause_ms,
    create_committer,
    is_hopeless,
)
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import USER_EXCEPTIONS
from headrace.functions.sink import (
    Committer,
    DeletesLeftovers,
    commit_key,
    scope_of,
    staging_owner,
)
from headrace.graph.job_graph import ChainedOperator, JobGraph
from headrace.task.batch.stage_rows import StageReport
from headrace.task.batch.stage_task import COMMIT_ID

_LOG: Final = logging.getLogger(__name__)
_TASKS_END_MS: Final = 15_000.0
"""Time in which Spark ends the tasks of a job that has failed or was cancelled: it kills their workers after 4 s."""
_LOOK_S: Final = 0.05


class CommitTurn:
    """Decides once whether a job commits its output or ends before. Any thread.

    A lock decides between the job's own thread and the JobMaster's: the first one wins.
    """

    def __init__(self) -> None:
        self._first: Final = threading.Lock()
        self._is_given_up: Final = threading.Event()

    def begin_commits(self) -> bool:
        """Return whether the job may commit; if True, it can end only after the commit has succeeded or failed."""
        return self._first.acquire(blocking=False)

    def forestall_commits(self) -> bool:
        """Return whether the commit was prevented. If it has begun, a failed commit is not retried."""
        if self._first.acquire(blocking=False):
            return True
        self._is_given_up.set()
        return False

    def await_retry(self, pause_ms: float) -> bool:
        """Wait before a commit is retried; return whether to retry it."""
        return not self._is_given_up.wait(pause_ms / 1000)


class BatchCommits:
    """Context manager with the committers of one job; on exit all uncommitted output is deleted.

    `await_tasks` returns once no task of the job runs. On the job's thread only.
    """

    def __init__(
        self,
        graph: JobGraph,
        settings: Settings,
        turn: CommitTurn,
        await_tasks: Callable[[], None],
    ) -> None:
        """Load the committers. NotInstalledError if one is not installed, before the job has run for hours."""
        self._graph: Final = graph
        self._turn: Final = turn
        self._await_tasks: Final = await_tasks
        self._retries: Final = settings.get_option(COMMIT_RETRIES)
        self._sinks: Final[list[tuple[ChainedOperator, Committer]]] = [
            (operator, create_committer(operator, settings, {}))
            for vertex in graph.vertices
            for operator in vertex.operators
            if operator.committer
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._sinks:
            self._await_tasks()
        for operator, committer in self._sinks:
            # The job has its result, which must not be lost to this.
            try:
                try:
                    self._delete_leftovers(operator, committer)
                finally:
                    committer.close()
            except Exception as failure:
                _LOG.warning(
                    "uncommitted output of sink '%s' could not be deleted, and stays: %s: %s",
                    operator.name,
                    type(failure).__name__,
                    failure,
                )

    def commit(self, reports: Sequence[StageReport]) -> None:
        """Make the prepared output of all sinks visible, once; `reports`: one report of each subtask, from Spark.

        CancelledError if the job ended before; CommitFailedError if a sink could not commit.
        """
        if not self._sinks:
            return
        if not self._turn.begin_commits():
            raise CancelledError("the job ended before its output was committed")
        ordered = sorted(reports, key=lambda one: one.subtask_index)
        committed: list[str] = []
        for operator, committer in self._sinks:
            effects = [
                content
                for report in ordered
                if report.operator_id == operator.operator_id
                for content in report.committables
            ]
            if not effects:
                continue
            try:
                self._commit_sink(operator, committer, effects)
            except CommitFailedError as error:
                if committed:
                    error.args = (
                        f"{error}; the output of these sinks is committed already: {', '.join(committed)}",
                    )
                raise
            committed.append(f"'{operator.name}'")

    def _commit_sink(
        self, operator: ChainedOperator, committer: Committer, effects: list[bytes]
    ) -> None:
        for attempt in range(self._retries + 1):
            try:
                committer.commit(self._key(operator), COMMIT_ID, effects)
                return
            except USER_EXCEPTIONS as error:
                is_last = attempt == self._retries or is_hopeless(error)
                if not is_last:
                    _LOG.warning(
                        "sink '%s' could not commit (try %d of %d): %s: %s",
                        operator.name,
                        attempt + 1,
                        self._retries + 1,
                        type(error).__name__,
                        error,
                    )
                    is_last = not self._turn.await_retry(commit_pause_ms(attempt))
                if is_last:
                    raise CommitFailedError(operator.name, COMMIT_ID, error) from error

    def _delete_leftovers(self, operator: ChainedOperator, committer: Committer) -> None:
        if isinstance(committer, DeletesLeftovers):
            owner = staging_owner(self._graph.job_id, operator.operator_id)
            committer.delete_leftovers(scope_of(self._key(operator)), owner)

    def _key(self, operator: ChainedOperator) -> str:
        return commit_key(self._graph.job_id.hex(), operator.operator_id.hex(), COMMIT_ID)


def await_tasks_of(context: SparkContext, group: str) -> None:
    """Wait until no task of a job group runs, for a limited time: Spark first kills the workers of cancelled tasks."""
    clock, pause = SystemClock(), threading.Event()
    deadline_ms = clock.monotonic_ms() + _TASKS_END_MS
    # Where the application has ended meanwhile, so have its tasks. A SparkContext that was stopped has no attributes.
    with contextlib.suppress(Py4JError, OSError, AttributeError):
        while _has_active_tasks(context, group):
            if clock.monotonic_ms() >= deadline_ms:
                _LOG.warning(
                    "tasks of job %s still run %d s after its end: output that they prepare from now on is not deleted",
                    group,
                    _TASKS_END_MS / 1000,
                )
                return
            pause.wait(_LOOK_S)


def _has_active_tasks(context: SparkContext, group: str) -> bool:
    tracker = context.statusTracker()
    for job_id in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(job_id)
        for stage_id in job.stageIds if job is not None else ():
            stage = tracker.getStageInfo(stage_id)
            if stage is not None and stage.numActiveTasks > 0:
                return True
    return False
