"""Publisher: makes a fully acknowledged checkpoint durable; from then on it counts.

Runs on the JobMaster's main thread. Source: Flink CheckpointCoordinator.completePendingCheckpoint.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from headrace.checkpoint.errors import PublicationUnknownError
from headrace.checkpoint.metadata import CheckpointMetadata, CompletedCheckpoint
from headrace.cluster.job_master.checkpointing.commits.commit_ledger import sent_keys
from headrace.cluster.job_master.checkpointing.commits.sink_commits import SinkCommits
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import PendingCheckpoint
from headrace.cluster.job_master.checkpointing.protocol.plan import CheckpointRefusedError
from headrace.cluster.job_master.checkpointing.store.checkpoint_io import CheckpointIo
from headrace.cluster.job_master.checkpointing.store.metadata_builder import metadata_of
from headrace.core.ids import OperatorId
from headrace.graph.job_graph import JobGraph


@dataclass(frozen=True)
class PublishedContent:
    """A durable checkpoint, and the keys of all prepared output that was sent with it."""

    completed: CompletedCheckpoint
    sent: dict[OperatorId, set[str]]

    @property
    def metadata(self) -> CheckpointMetadata:
        """As it was published."""
        return self.completed.metadata


class Publisher:
    """One publication at a time; `on_published` or `on_failed` hears how it ended."""

    def __init__(
        self,
        calls: CheckpointIo,
        commits: SinkCommits,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        on_published: Callable[[PendingCheckpoint, PublishedContent], None],
        on_failed: Callable[[PendingCheckpoint, Exception], None],
    ) -> None:
        self._calls: Final = calls
        self._commits: Final = commits
        self._spawn: Final = spawn
        self._on_published: Final = on_published
        self._on_failed: Final = on_failed
        self._settled: Final = asyncio.Event()
        self._settled.set()

    async def settled(self) -> None:
        """Return once no publication is under way: what is the latest checkpoint is known then."""
        await self._settled.wait()

    def publish(self, checkpoint: PendingCheckpoint, graph: JobGraph) -> None:
        """Begin."""
        store = self._calls.store
        try:
            acknowledged = metadata_of(checkpoint, graph, store.lineage_id, store.epoch)
        except CheckpointRefusedError as error:
            self._on_failed(checkpoint, error)
            return
        metadata = self._commits.complete(acknowledged)
        self._settled.clear()
        self._spawn(
            self._publish(checkpoint, metadata, sent_keys(acknowledged)), "publish a checkpoint"
        )

    async def _publish(
        self,
        checkpoint: PendingCheckpoint,
        metadata: CheckpointMetadata,
        sent: dict[OperatorId, set[str]],
    ) -> None:
        try:
            completed = await self._calls.call(
                "publish", lambda: self._calls.store.publish(metadata, checkpoint.options)
            )
        except Exception as error:
            if not isinstance(error, PublicationUnknownError):
                discard(self._calls, checkpoint)
            self._on_failed(checkpoint, error)
        else:
            self._on_published(checkpoint, PublishedContent(completed, sent))
        finally:
            self._settled.set()


def discard(calls: CheckpointIo, checkpoint: PendingCheckpoint) -> None:
    """Delete what a checkpoint has stored that came to nothing."""
    files = [file for snapshot in checkpoint.snapshots.values() for file in snapshot.files()]
    calls.discard(checkpoint.checkpoint_id, checkpoint.options, files)
