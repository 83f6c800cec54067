"""SinkCommits: makes published output visible, on one thread per sink, in the order of checkpoint ids.

The output to commit comes from published metadata, never from messages of tasks, so that no lost message delays it.
After an unknown outcome the call is repeated with the same key, which the target recognises. Runs on the JobMaster's
main thread.
Source: Flink CommitterOperator; the design is ours.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from headrace.checkpoint.metadata import CheckpointMetadata, PendingCommit
from headrace.checkpoint.options import REPEAT_OUTPUT
from headrace.cluster.job_master.checkpointing.commits.commit_ledger import CommitLedger
from headrace.cluster.leadership import always_leads
from headrace.core.config import ConfigOption, Settings
from headrace.core.entry_points import entry_point_names, load_entry_point
from headrace.core.errors import (
    ErrorDomain,
    HeadraceError,
    NotInstalledError,
    UserCodeError,
    is_outage,
)
from headrace.core.ids import OperatorId
from headrace.core.threads import BlockingRunner
from headrace.functions.sink import (
    COMMITTER_ENTRY_POINTS,
    Committer,
    CommitterContext,
    CommitterFactory,
    KnowsCommits,
    commit_key,
    scope_of,
)
from headrace.graph.job_graph import ChainedOperator, JobGraph
from headrace.rpc.endpoint import RpcEndpoint

_LOG = logging.getLogger(__name__)

COMMIT_RETRIES: Final = ConfigOption(
    "sink.committer.retries", int, 10,
    "Number of retries of a sink's commit before the job fails, with pauses that grow up to 10 s.",
)  # fmt: skip
COMMIT_BACKLOG_MAX: Final = 3
"""Number of checkpoints with uncommitted output at which no further checkpoint is taken."""
_FIRST_PAUSE_MS: Final = 100.0
_PAUSE_MAX_MS: Final = 10_000.0


class CommitFailedError(HeadraceError):
    """Published output could not be made visible. It stays prepared, and the restarted job retries."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, sink_name: str, checkpoint_id: int, error: BaseException) -> None:
        super().__init__(
            f"the output of checkpoint {checkpoint_id} could not be committed by sink '{sink_name}': "
            f"{type(error).__name__}: {error}"
        )
        self.repeats = not is_outage(error)


class CommitFunctionFailedError(CommitFailedError):
    """A user's function that was called with the output of a checkpoint raised an error.

    The restarted job calls it again.
    """

    domain = ErrorDomain.USER

    def __init__(self, sink_name: str, checkpoint_id: int, error: UserCodeError) -> None:
        super().__init__(sink_name, checkpoint_id, error)
        first, newline, rest = str(error).partition("\n")
        self.args = (f"{first}, with the rows of checkpoint {checkpoint_id}{newline}{rest}",)


class CommitRefusedError(CommitFailedError):
    """A commit failed in a way that a retry cannot fix."""

    recoverable = False


class OutputAheadError(HeadraceError):
    """A job would start from an older checkpoint than its sinks have committed: output would be written twice."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, sink_name: str, checkpoint_id: int, committed_id: int) -> None:
        super().__init__(
            f"sink '{sink_name}' has committed the output of checkpoint {committed_id}, but the job would start from "
            f"checkpoint {checkpoint_id}, so all output in between would be written twice. Start from checkpoint "
            f"{committed_id} or a later one (`headrace checkpoint list` shows those that are kept); or keep that "
            "output and continue with a second job that has its own target (-D headrace.state-recovery.fork="
            f"true); or accept the duplicates, or remove them yourself, with -D {REPEAT_OUTPUT.key}=true"
        )
        self.sink_name = sink_name
        self.checkpoint_id = checkpoint_id
        self.committed_id = committed_id


class SinkCommits:
    """Committers of one job's sinks.

    `on_changed` is called when the backlog changes, `on_failed` when a commit is given up, `tell` with notices for the
    user. `fence` raises right before a commit if another process may lead the job by now.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        graph: JobGraph,
        settings: Settings,
        run_blocking: BlockingRunner,
        *,
        on_changed: Callable[[], None],
        on_failed: Callable[[CommitFailedError], None],
        tell: Callable[[str], None],
        factories: Mapping[str, CommitterFactory] | None = None,
        fence: Callable[[], None] = always_leads,
    ) -> None:
        self._fence: Final = fence
        self._endpoint: Final = endpoint
        self._run_blocking: Final = run_blocking
        self._on_changed: Final = on_changed
        self._on_failed: Final = on_failed
        self._tell: Final = tell
        self._retries: Final = settings.get_option(COMMIT_RETRIES)
        self._may_repeat: Final = settings.get_option(REPEAT_OUTPUT)
        self._sinks: Final = {
            operator.operator_id: _Sink(
                operator, create_committer(operator, settings, factories or {})
            )
            for vertex in graph.vertices
            for operator in vertex.operators
            if operator.committer
        }
        self._ledger: Final = CommitLedger(self._sinks)
        self._lineage_id = ""
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        self._is_closed = False

    @property
    def undecided_ids(self) -> tuple[int, ...]:
        """Ids of checkpoints with uncommitted output."""
        return self._ledger.undecided_ids

    @property
    def is_backlog_full(self) -> bool:
        """Return whether no further checkpoint may be taken before a sink has committed."""
        return len(self._ledger.undecided_ids) >= COMMIT_BACKLOG_MAX

    @property
    def blocking_sinks(self) -> tuple[str, ...]:
        """Names of the sinks with uncommitted output."""
        return tuple(self._sinks[key].name for key in self._ledger.blocking_sinks)

    def complete(self, metadata: CheckpointMetadata) -> CheckpointMetadata:
        """Return the metadata to publish, in which each piece of prepared output occurs once."""
        return self._ledger.complete(metadata)

    def published(self, metadata: CheckpointMetadata, sent: Mapping[OperatorId, set[str]]) -> None:
        """Commit the new output of a published checkpoint. `sent`: see CommitLedger.published."""
        self._lineage_id = metadata.lineage
        self._ledger.published(metadata, sent)
        self._commit_all()
        self._on_changed()

    async def restore(self, metadata: CheckpointMetadata | None) -> None:
        """Commit all output that another JobMaster may have left uncommitted, before any task runs.

        CommitFailedError if a commit fails; OutputAheadError if a sink has committed output of a later checkpoint.
        """
        self._ledger.restore(metadata)
        if metadata is not None:
            self._lineage_id = metadata.lineage
            for operator_id, sink in self._sinks.items():
                await self._refuse_repetition(operator_id, sink, metadata.checkpoint_id)
        await self.resume()

    async def resume(self) -> None:
        """Finish all pending and failed commits before tasks restart. CommitFailedError if one fails.

        Keys of output sent before stay known: tasks that keep running may send it again.
        """
        for sink in self._sinks.values():
            sink.failure = None
        self._commit_all()
        self._on_changed()
        await self.await_all()

    async def await_all(self) -> None:
        """Wait until everything published is committed. CommitFailedError if a commit fails."""
        await self._idle.wait()
        for sink in self._sinks.values():
            if sink.failure is not None:
                raise sink.failure

    async def close(self) -> None:
        """Wait for running commits, start no other, and close the committers. Idempotent."""
        self._is_closed = True
        await self._threads_end()
        for sink in self._sinks.values():
            committer, sink.committer = sink.committer, None
            if committer is not None:
                try:
                    await self._run_blocking(f"close-{sink.name}", committer.close)
                except Exception as error:
                    _LOG.warning("the committer of sink '%s' did not close: %s", sink.name, error)

    async def _refuse_repetition(
        self, operator_id: OperatorId, sink: "_Sink", checkpoint_id: int
    ) -> None:
        committer = sink.committer
        if not isinstance(committer, KnowsCommits):
            return
        scope = scope_of(commit_key(self._lineage_id, str(operator_id), checkpoint_id))
        try:
            last_id = await self._asked(sink, lambda: committer.last_committed(scope))
        except Exception as error:
            kind = CommitFailedError if getattr(error, "recoverable", True) else CommitRefusedError
            raise kind(sink.name, checkpoint_id, error) from error
        if last_id is None or last_id <= checkpoint_id:
            return
        ahead = OutputAheadError(sink.name, checkpoint_id, last_id)
        if not self._may_repeat:
            raise ahead
        self._tell(
            f"sink '{sink.name}' has committed the output of checkpoint {last_id}, but the job starts from checkpoint "
            f"{checkpoint_id}: the output in between is written a second time, as {REPEAT_OUTPUT.key} allows"
        )

    async def _asked(self, sink: "_Sink", ask: Callable[[], int | None]) -> int | None:
        """Query a target for its last committed checkpoint, with as many retries as a commit."""
        failed_count = 0
        while True:
            try:
                return await self._run_blocking(f"ask-{sink.name}", ask)
            except Exception as error:
                is_over = not getattr(error, "recoverable", True) or failed_count >= self._retries
                if is_over or self._is_closed:
                    raise
                pause_ms = commit_pause_ms(failed_count)
                failed_count += 1
                self._tell(
                    f"sink '{sink.name}' did not report its last commit (try {failed_count} of "
                    f"{self._retries + 1}): {type(error).__name__}: {error}; retrying in {pause_ms / 1000:.1f} s"
                )
            waited = asyncio.Event()
            self._endpoint.schedule_run_async(pause_ms, waited.set)
            await waited.wait()

    def _commit_all(self) -> None:
        for operator_id in self._ledger.sinks:
            self._commit_next(operator_id)
        self._note_idle()

    def _commit_next(self, operator_id: OperatorId) -> None:
        """Start the sink's next commit, unless one is running, waits for a retry, or has failed."""
        sink = self._sinks[operator_id]
        pending = self._ledger.next_of(operator_id)
        if pending is None or sink.is_busy or sink.failure is not None or self._is_closed:
            return
        sink.is_busy = True
        sink.running = self._endpoint.spawn(self._commit(sink, pending), f"commit {sink.name}")

    async def _commit(self, sink: "_Sink", pending: PendingCommit) -> None:
        committer = sink.committer
        assert committer is not None
        key = commit_key(self._lineage_id, str(pending.operator_id), pending.checkpoint_id)
        contents = [committable.content for committable in pending.committables]
        error: Exception | None = None

        def commit() -> None:
            self._fence()
            committer.commit(key, pending.checkpoint_id, contents)

        try:
            await self._run_blocking(f"commit-{sink.name}", commit)
        except Exception as raised:
            error = raised
        self._commit_ended(sink, pending, error)

    def _commit_ended(self, sink: "_Sink", pending: PendingCommit, error: Exception | None) -> None:
        sink.running = None
        if error is None:
            sink.is_busy = False
            sink.failed_count = 0
            self._ledger.committed(pending.operator_id, pending.checkpoint_id)
            self._commit_next(pending.operator_id)
            self._on_changed()
        elif self._is_closed:
            sink.is_busy = False
        elif is_hopeless(error) or sink.failed_count >= self._retries:
            sink.is_busy = False
            sink.failed_count = 0
            sink.failure = commit_failure(sink.name, pending.checkpoint_id, error)
            sink.failure.__cause__ = error
            self._on_failed(sink.failure)
        else:
            self._retry(sink, pending, error)
        self._note_idle()

    def _retry(self, sink: "_Sink", pending: PendingCommit, error: Exception) -> None:
        pause_ms = commit_pause_ms(sink.failed_count)
        sink.failed_count += 1
        self._tell(
            f"sink '{sink.name}' could not commit checkpoint {pending.checkpoint_id} (try {sink.failed_count} of "
            f"{self._retries + 1}): {type(error).__name__}: {error}; retrying in {pause_ms / 1000:.1f} s"
        )

        def again() -> None:
            sink.is_busy = False
            self._commit_next(pending.operator_id)
            self._note_idle()

        self._endpoint.schedule_run_async(pause_ms, again)

    def _note_idle(self) -> None:
        """Set `_idle` if no commit runs, and commits wait only behind a failed one."""
        is_idle = all(
            not sink.is_busy
            and (sink.failure is not None or self._ledger.next_of(operator_id) is None)
            for operator_id, sink in self._sinks.items()
        )
        if is_idle:
            self._idle.set()
        else:
            self._idle.clear()

    async def _threads_end(self) -> None:
        """Wait for the running commits, because a thread cannot be stopped."""
        running = [sink.running for sink in self._sinks.values() if sink.running is not None]
        if running:
            await asyncio.wait(running)


class _Sink:
    """State of one sink. `is_busy`: a commit runs, or waits for a retry."""

    def __init__(self, operator: ChainedOperator, committer: Committer) -> None:
        self.name: Final = operator.name
        self.committer: Committer | None = committer
        self.is_busy = False
        self.running: asyncio.Future[None] | None = None
        self.failed_count = 0
        self.failure: CommitFailedError | None = None


def commit_failure(sink_name: str, checkpoint_id: int, error: Exception) -> CommitFailedError:
    """Return the error to report for a commit that is given up."""
    if not getattr(error, "recoverable", True):
        return CommitRefusedError(sink_name, checkpoint_id, error)
    if isinstance(error, UserCodeError):
        return CommitFunctionFailedError(sink_name, checkpoint_id, error)
    return CommitFailedError(sink_name, checkpoint_id, error)


def is_hopeless(error: BaseException) -> bool:
    """Return whether a failed commit need not be retried, because a retry or the user's function would fail again."""
    has_mistake = isinstance(error, UserCodeError) and error.repeats
    return has_mistake or not getattr(error, "recoverable", True)


def commit_pause_ms(failed_count: int) -> float:
    """Return the pause in ms before the next attempt of a commit that has failed `failed_count` times."""
    return min(_FIRST_PAUSE_MS * 2**failed_count, _PAUSE_MAX_MS)


def create_committer(
    operator: ChainedOperator, settings: Settings, factories: Mapping[str, CommitterFactory]
) -> Committer:
    """Return the committer of a sink. NotInstalledError if none is installed for it."""
    name = operator.committer
    factory = factories.get(name)
    if factory is None:
        if name not in entry_point_names(COMMITTER_ENTRY_POINTS):
            known = ", ".join(entry_point_names(COMMITTER_ENTRY_POINTS)) or "none"
            raise NotInstalledError(
                f"sink '{operator.name}' needs the committer '{name}', which is not installed on the driver; installed "
                f"are: {known}"
            )
        factory = load_entry_point(COMMITTER_ENTRY_POINTS, name)
    return factory(CommitterContext(operator.name, settings), operator.committer_payload)
