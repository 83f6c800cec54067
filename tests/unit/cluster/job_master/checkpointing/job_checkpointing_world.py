"""Checkpoints of a job with a scripted storage, tasks and coordinators, on a virtual loop."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import (
    CheckpointMetrics,
    CheckpointProgress,
    OperatorSubtaskState,
    StateChunk,
    StateFile,
    StateTable,
    TaskStateSnapshot,
)
from headrace.checkpoint.metadata import CheckpointMetadata, CompletedCheckpoint
from headrace.cluster.job_master.checkpointing.checkpoint_coordinator import CheckpointCoordinator
from headrace.cluster.job_master.checkpointing.checkpoint_tasks import CheckpointTasks
from headrace.cluster.job_master.checkpointing.commits.sink_commits import SinkCommits
from headrace.cluster.job_master.checkpointing.protocol.checkpoint_plan import (
    CheckpointPlan,
    CheckpointRefusedError,
)
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import PendingCheckpoint
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import (
    CheckpointsLeft,
    CheckpointStore,
)
from headrace.cluster.job_master.coordinators.operator_coordinators import OperatorCoordinators
from headrace.cluster.job_master.job_notices import JobNotices
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.ids import ExecutionAttemptId, OperatorId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.graph.execution_graph import expand
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.loopback import LoopbackNetwork
from testkit.simulation.virtual_loop import VirtualLoop
from tests.unit.cluster.cluster_samples import attempt, edge, job_graph, vertex

T = TypeVar("T")

SOURCE, SINK = attempt(0, vertex=1), attempt(0, vertex=2)
OPERATOR = OperatorId((1).to_bytes(16, "big"))


class ScriptedStore(CheckpointStore):
    """Keeps what is published; raises the scripted error of a call once."""

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}
        self.published: list[CheckpointMetadata] = []
        self.discarded: list[tuple[int, str, list[str]]] = []
        self.shared: list[tuple[int, str]] = []
        self.closed: list[tuple[JobStatus, bool]] = []
        self.left = CheckpointsLeft()
        self.last_id = 0
        self.given_up: list[int] = []

    @property
    def lineage_id(self) -> str:
        return "lineage"

    @property
    def epoch(self) -> int:
        return 3

    @property
    def retained_ids(self) -> frozenset[int]:
        return frozenset(each.checkpoint_id for each in self.published[-1:])

    def _raise(self, call: str) -> None:
        error = self.errors.pop(call, None)
        if error is not None:
            raise error

    def recover(self) -> CompletedCheckpoint | None:
        self._raise("recover")
        return self.latest()

    def latest(self) -> CompletedCheckpoint | None:
        return CompletedCheckpoint(self.published[-1], "") if self.published else None

    def take_id(self) -> int:
        self._raise("take_id")
        self.last_id += 1
        return self.last_id

    def give_up_id(self, checkpoint_id: int) -> None:
        self.given_up.append(checkpoint_id)

    def locate(
        self, checkpoint_id: int, options: CheckpointOptions, target: str
    ) -> CheckpointOptions:
        self._raise("locate")
        return msgspec.structs.replace(options, exclusive_uri=f"{target}/chk-{checkpoint_id}")

    def publish(
        self, metadata: CheckpointMetadata, options: CheckpointOptions
    ) -> CompletedCheckpoint:
        self._raise("publish")
        self.published.append(metadata)
        return CompletedCheckpoint(metadata, options.exclusive_uri)

    def register_shared(self, checkpoint_id: int, files: Iterable[StateFile]) -> None:
        self.shared += [(checkpoint_id, file.uri) for file in files]

    def discard(
        self, checkpoint_id: int, options: CheckpointOptions, files: Iterable[StateFile]
    ) -> None:
        self._raise("discard")
        uris = [file.uri for file in files]
        self.discarded.append((checkpoint_id, options.exclusive_uri, uris))

    def close(self, status: JobStatus, *, keeps_latest: bool = False) -> CheckpointsLeft:
        self.closed.append((status, keeps_latest))
        return self.left


class ScriptedTasks(CheckpointTasks):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.refusal: CheckpointRefusedError | None = None
        self.told: list[tuple[Any, ...]] = []
        self.answer: CheckpointProgress | None = None
        self.answers_late = False
        self._ending: list[ExecutionAttemptId] = []
        self._has_all_data_ended = False

    @property
    def ending(self) -> list[ExecutionAttemptId]:
        return self._ending

    @ending.setter
    def ending(self, attempts: list[ExecutionAttemptId]) -> None:
        self._ending = attempts

    @property
    def has_all_data_ended(self) -> bool:
        return self._has_all_data_ended

    @has_all_data_ended.setter
    def has_all_data_ended(self, has_ended: bool) -> None:
        self._has_all_data_ended = has_ended

    def plan(self) -> CheckpointPlan:
        if self.refusal is not None:
            raise self.refusal
        return CheckpointPlan((SOURCE,), (SOURCE, SINK))

    def trigger(self, attempt_id: ExecutionAttemptId, checkpoint: PendingCheckpoint) -> None:
        alignment = checkpoint.options.alignment
        self.told.append(("trigger", attempt_id, checkpoint.checkpoint_id, alignment))

    async def progress(
        self, attempt_id: ExecutionAttemptId, checkpoint_id: int
    ) -> CheckpointProgress | None:
        self.told.append(("asked", attempt_id, checkpoint_id))
        if self.answers_late:
            await asyncio.sleep(1)
        return self.answer

    def notify_complete(self, attempt_id: ExecutionAttemptId, checkpoint_id: int) -> None:
        self.told.append(("complete", attempt_id, checkpoint_id))

    def notify_aborted(
        self, attempt_id: ExecutionAttemptId, checkpoint_id: int, latest_completed_id: int
    ) -> None:
        self.told.append(("aborted", attempt_id, checkpoint_id, latest_completed_id))


class ScriptedCoordinators(OperatorCoordinators):
    """Notes what it hears; what it said has arrived when the test says so."""

    def __init__(self) -> None:
        self.is_quiet = True
        self.error: Exception | None = None
        self.heard: list[tuple[Any, ...]] = []
        self.arrived: Callable[[], None] = lambda: None

    @property
    def can_be_snapshotted(self) -> bool:
        return self.is_quiet

    def when_quiet(self, action: Callable[[], None]) -> None:
        self.arrived = action

    def when_backlog_changes(self, action: Callable[[bool], None]) -> None:
        self.backlog_changed = action

    def checkpoint(self, checkpoint_id: int) -> dict[OperatorId, bytes]:
        if self.error is not None:
            raise self.error
        self.heard.append(("taken", checkpoint_id))
        return {OPERATOR: b"enumerator"}

    def acknowledged(self, attempt_id: ExecutionAttemptId, checkpoint_id: int) -> None:
        self.heard.append(("acknowledged", attempt_id, checkpoint_id))

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        self.heard.append(("completed", checkpoint_id))

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.heard.append(("aborted", checkpoint_id))


class World:
    """Checkpoints of a job with a source and a sink, on a virtual loop."""

    def __init__(self, configuration: CheckpointCoordinatorConfiguration) -> None:
        self.loop = VirtualLoop(ManualClock(1_000))
        network = LoopbackNetwork(self.loop.clock, SeededRandom(1), loop=self.loop)
        self.endpoint = RpcEndpoint(network.create_service("master"), "job")
        self.endpoint.start()
        self.store, self.tasks = ScriptedStore(), ScriptedTasks()
        self.coordinators = ScriptedCoordinators()
        self.failures: list[HeadraceError] = []
        self.final_savepoints: list[str] = []
        self.ended: list[tuple[int, CompletedCheckpoint | CheckpointFailureReason]] = []
        self.positions: list[bytes] = []
        self.notices = JobNotices(self.loop.clock, self.endpoint.schedule_run_async)
        # Cleared, calls of the storage do not end.
        self.storage_answers = asyncio.Event()
        self.storage_answers.set()
        graph = expand(job_graph((vertex(1, 1), vertex(2, 1)), (edge(1, 2),)))
        self.checkpointing = CheckpointCoordinator(
            self.endpoint,
            lambda: graph,
            configuration,
            self.store,
            tasks=self.tasks,
            coordinators=self.coordinators,
            commits=SinkCommits(
                self.endpoint,
                graph.job_graph,
                Settings(),
                self.run_blocking,
                on_changed=lambda: self.checkpointing.brakes_changed(),
                on_failed=self.failures.append,
                tell=lambda text: self.notices.tell("commits", text),
            ),
            run_blocking=self.run_blocking,
            on_failed=self.failures.append,
            on_ended=lambda checkpoint, outcome: self.ended.append(
                (checkpoint.checkpoint_id, outcome)
            ),
            on_final_savepoint=self.final_savepoints.append,
            on_completed=lambda position, _: self.positions.append(position),
            notices=self.notices,
            reminder_ms=100,
        )
        self.loop.run_until(self.checkpointing.lineage.recover())

    def close(self) -> None:
        self.endpoint.rpc_service.abort()
        self.loop.run_for(1)
        self.loop.close()

    async def run_blocking(self, name: str, body: Callable[[], T]) -> T:
        await self.storage_answers.wait()
        return body()

    def begin(self, kind: SnapshotKind = SnapshotKind.CHECKPOINT, target: str = "") -> Any:
        asked = self.endpoint.spawn(self._asked(kind, target), "a user asks")
        self.loop.run_for(1)
        return asked

    async def _asked(self, kind: SnapshotKind, target: str) -> CompletedCheckpoint | HeadraceError:
        try:
            return await self.checkpointing.trigger(kind, target)
        except HeadraceError as error:
            return error

    def acknowledge(self, checkpoint_id: int, *uris: str) -> None:
        for attempt_id in (SOURCE, SINK):
            files = [StateFile(uri, b"", 1, b"", uri.startswith("shared")) for uri in uris]
            chunks = tuple(StateChunk(StateTable.KEYED, "s", 1, file) for file in files)
            snapshot = TaskStateSnapshot({OPERATOR: OperatorSubtaskState(chunks)})
            self.checkpointing.acknowledge(attempt_id, checkpoint_id, snapshot, CheckpointMetrics())
        self.loop.run_for(1)
