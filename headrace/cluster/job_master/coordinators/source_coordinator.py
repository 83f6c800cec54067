"""SourceCoordinator: runs the enumerator of a source, and remembers the splits that each reader was assigned.

At every checkpoint, and after every failure, each split belongs to the enumerator or to one reader: splits that were
assigned after a checkpoint are returned when their reader is reset to that checkpoint (SplitAssignmentTracker).

    assigned ──► open ── checkpoint n is taken ──► under n ── n is published ──► forgotten: the reader's state has it
                   └──────── the reader is reset to c ──────────┴── (n > c) ──► back to the enumerator

Built in under `source`. Runs on the JobMaster's main thread.
Source: Flink SourceCoordinator, SourceCoordinatorContext, SplitAssignmentTracker.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.core.config import Settings
from headrace.core.entry_points import entry_point_names, load_entry_point
from headrace.core.errors import HeadraceError, NotInstalledError, wrap_user_error
from headrace.core.ids import ExecutionAttemptId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.functions.hybrid_enumerator import (
    HYBRID_ENUMERATOR,
    HybridEnumeration,
    HybridEnumerator,
)
from headrace.functions.source import (
    SPLIT_ENUMERATORS,
    AddSplits,
    ConnectorEvent,
    EnumeratorFactory,
    EnumeratorPayload,
    EventToReader,
    NoMoreSplits,
    RegisterReader,
    RequestSplit,
    SourceSplit,
    SplitEnumerator,
    event_bytes,
    event_to_coordinator,
)
from headrace.metrics import cluster_names as names
from headrace.metrics.groups import MetricGroup

T = TypeVar("T")
_ENUMERATOR: Final = "enumerator"


class SplitAssignmentTracker:
    """Remembers assigned splits, with the position at their assignment, until a published checkpoint contains them."""

    def __init__(self) -> None:
        self._open: dict[int, list[SourceSplit]] = {}
        self._by_checkpoint: dict[int, dict[int, list[SourceSplit]]] = {}

    def assigned(self, subtask_index: int, splits: Sequence[SourceSplit]) -> None:
        """Record splits that the enumerator's next state will no longer contain."""
        self._open.setdefault(subtask_index, []).extend(splits)

    def checkpoint_taken(self, checkpoint_id: int) -> None:
        """Record that the enumerator's state was taken: earlier splits are in the readers' part of the checkpoint."""
        self._by_checkpoint[checkpoint_id], self._open = self._open, {}

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Forget splits up to a published checkpoint, because no subtask will be reset to an older one."""
        for older in [one for one in self._by_checkpoint if one <= checkpoint_id]:
            del self._by_checkpoint[older]

    def take_back(self, subtask_index: int, restored_id: int | None) -> list[SourceSplit]:
        """Forget and return the splits that a subtask no longer has once it is reset to `restored_id`.

        None means the beginning of the job. The splits are returned in the order of their assignment.
        """
        after = 0 if restored_id is None else restored_id
        returned: list[SourceSplit] = []
        for checkpoint_id in sorted(one for one in self._by_checkpoint if one > after):
            returned += self._by_checkpoint[checkpoint_id].pop(subtask_index, [])
        return returned + self._open.pop(subtask_index, [])


class SourceCoordinator:
    """Coordinator of one source; `factory` makes its enumerator from `content`. Implements OperatorCoordinator."""

    def __init__(
        self, context: CoordinatorContext, factory: EnumeratorFactory, content: bytes
    ) -> None:
        self._context: Final = context
        self._factory: Final = factory
        self._content: Final = content
        self._readers: dict[int, tuple[ExecutionAttemptId, str]] = {}
        # Readers that are opening, and whether they have already requested a split. Subtasks that had finished before
        # the checkpoint from which they start have no reader, and never occur here.
        self._opening: dict[int, bool] = {}
        self._tracker = SplitAssignmentTracker()
        metrics = context.metric_group
        metrics.gauge(names.NUM_REGISTERED_READERS, lambda: len(self._readers))
        self._assigned_count: Final = metrics.counter(names.NUM_SPLITS_ASSIGNED)
        self._returned_count: Final = metrics.counter(names.NUM_SPLITS_RETURNED)
        self._is_started = False
        self._is_backlog = False
        self._enumeration = self._new_enumeration()

    def start(self) -> None:
        """Start the enumerator, anew or from the state passed to `reset`."""
        self._is_started = True
        self._enumeration.enumerator.start()

    def subtask_ready(self, attempt_id: ExecutionAttemptId, location: TaskManagerLocation) -> None:
        """Register the reader, and pass on its earlier request."""
        subtask_index = attempt_id.subtask_index
        wants_split = self._opening.pop(subtask_index, None)
        if wants_split is None:
            return
        self._readers[subtask_index] = (attempt_id, location.host)
        self._enumeration.enumerator.add_reader(subtask_index)
        if wants_split:
            self._handle_request(subtask_index)

    def subtask_failed(self, attempt_id: ExecutionAttemptId) -> None:
        """Unregister the reader. Its splits stay assigned until the checkpoint of its reset is known."""
        self._opening.pop(attempt_id.subtask_index, None)
        known = self._readers.get(attempt_id.subtask_index)
        if known is not None and known[0] == attempt_id:
            del self._readers[attempt_id.subtask_index]

    def subtask_reset(self, subtask_index: int, checkpoint_id: int | None) -> None:
        """Take back the splits that are not in the state of a new attempt, which starts from a checkpoint or anew."""
        self._readers.pop(subtask_index, None)
        self._opening.pop(subtask_index, None)
        splits = self._tracker.take_back(subtask_index, checkpoint_id)
        if splits:
            self._returned_count.inc(len(splits))
            self._enumeration.enumerator.add_splits_back(splits, subtask_index)

    def handle_event(self, attempt_id: ExecutionAttemptId, payload: bytes) -> None:
        """Handle a reader's registration, request for a split, or event for its enumerator."""
        subtask_index = attempt_id.subtask_index
        match event_to_coordinator(payload):
            case RegisterReader():
                self._opening[subtask_index] = False
            case RequestSplit() if subtask_index in self._readers:
                self._handle_request(subtask_index)
            case RequestSplit():
                self._opening[subtask_index] = True
            case ConnectorEvent(content):
                self._enumeration.enumerator.handle_source_event(subtask_index, content)

    def checkpoint(self, checkpoint_id: int) -> bytes:
        """Return the enumerator's state; later assignments count for the next checkpoint."""
        state = self._enumeration.enumerator.snapshot_state(checkpoint_id)
        self._tracker.checkpoint_taken(checkpoint_id)
        return state

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Forget assignments that are now in the readers' published state."""
        self._tracker.checkpoint_completed(checkpoint_id)
        self._enumeration.enumerator.notify_checkpoint_complete(checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Do nothing: splits assigned before the aborted checkpoint count for a later one."""

    def reset(self, checkpoint_id: int | None, state: bytes | None) -> None:
        """Make a new enumerator, because it and all readers start from a checkpoint, or anew."""
        self._enumeration.close()
        self.set_backlog(False)
        self._readers.clear()
        self._opening.clear()
        self._tracker = SplitAssignmentTracker()
        self._enumeration = self._new_enumeration()
        if state is not None:
            self._enumeration.enumerator.restore(state)
        if self._is_started:
            self._enumeration.enumerator.start()

    async def job_finishing(self) -> None:
        """Do nothing: readers end only after all their splits."""

    async def close(self) -> None:
        """Close the enumerator."""
        self._enumeration.close()

    def assign(self, subtask_index: int, splits: Sequence[SourceSplit]) -> None:
        """Send splits to a reader, and remember the assignment. Called by the enumerator."""
        assert subtask_index in self._readers, f"reader {subtask_index} is not registered"
        self._tracker.assigned(subtask_index, splits)
        self._assigned_count.inc(len(splits))
        self._context.send_event(subtask_index, event_bytes(AddSplits(tuple(splits))))

    def tell(self, subtask_index: int, event: EventToReader) -> None:
        """Send an event to a registered reader. Called by the enumerator."""
        assert subtask_index in self._readers, f"reader {subtask_index} is not registered"
        self._context.send_event(subtask_index, event_bytes(event))

    def set_backlog(self, is_backlog: bool) -> None:
        """Report whether there is a backlog. Called by the enumerator."""
        if is_backlog != self._is_backlog:
            self._is_backlog = is_backlog
            self._context.report_backlog(is_backlog)

    @property
    def registered_readers(self) -> Sequence[int]:
        """Subtask indexes of the running readers."""
        return sorted(self._readers)

    def _handle_request(self, subtask_index: int) -> None:
        host = self._readers[subtask_index][1]
        self._enumeration.enumerator.handle_split_request(subtask_index, host)

    def _new_enumeration(self) -> "_Enumeration":
        self._context.metric_group.remove_group(_ENUMERATOR)
        return _Enumeration(self, self._context, self._factory, self._content)


class _Enumeration:
    """An enumerator and its context, valid while it is the current one. Implements SplitEnumeratorContext."""

    def __init__(
        self,
        coordinator: SourceCoordinator,
        context: CoordinatorContext,
        factory: EnumeratorFactory,
        content: bytes,
    ) -> None:
        self._coordinator: Final = coordinator
        self._context: Final = context
        self._is_closed = False
        self.enumerator: Final[SplitEnumerator] = factory(self, content)

    @property
    def parallelism(self) -> int:
        return self._context.parallelism

    @property
    def settings(self) -> Settings:
        return self._context.settings

    @property
    def metric_group(self) -> MetricGroup:
        return self._context.metric_group.add_group(_ENUMERATOR)

    @property
    def registered_readers(self) -> Sequence[int]:
        return self._coordinator.registered_readers

    def assign_splits(self, subtask_index: int, splits: Sequence[SourceSplit]) -> None:
        assert not self._is_closed
        self._coordinator.assign(subtask_index, splits)

    def signal_no_more_splits(self, subtask_index: int) -> None:
        assert not self._is_closed
        self._coordinator.tell(subtask_index, NoMoreSplits())

    def set_is_processing_backlog(self, is_processing_backlog: bool) -> None:
        if not self._is_closed:
            self._coordinator.set_backlog(is_processing_backlog)

    def send_source_event(self, subtask_index: int, payload: bytes) -> None:
        assert not self._is_closed
        self._coordinator.tell(subtask_index, ConnectorEvent(payload))

    def call_async(
        self,
        work: Callable[[], T],
        handler: Callable[[T | None, BaseException | None], None],
        *,
        delay_ms: float = 0,
    ) -> None:
        def handle(result: Any, error: BaseException | None) -> None:
            if self._is_closed:
                return
            try:
                handler(result, error)
            except HeadraceError:
                raise
            except Exception as failure:
                name = self._context.operator_name
                raise wrap_user_error(failure, name, self._context.location) from failure

        def begin() -> None:
            if not self._is_closed:
                name = f"splits: {self._context.operator_name}"
                self._context.later.call_blocking(name, work, handle)

        if delay_ms > 0:
            self._context.later.schedule(delay_ms, begin)
        else:
            begin()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.enumerator.close()


def create_source_coordinator(context: CoordinatorContext, payload: bytes) -> SourceCoordinator:
    """Make the coordinator of a SplitSource. NotInstalledError if its enumerator is not installed."""
    described = msgspec.msgpack.decode(payload, type=EnumeratorPayload)
    factory = _enumerator_factory(context, described.enumerator)
    return SourceCoordinator(context, factory, described.content)


def _enumerator_factory(context: CoordinatorContext, name: str) -> EnumeratorFactory:
    if name == HYBRID_ENUMERATOR:
        return lambda hybrid, content: HybridEnumerator(
            hybrid,
            msgspec.msgpack.decode(content, type=HybridEnumeration),
            lambda part, described: _enumerator_factory(context, described.enumerator)(
                part, described.content
            ),
        )
    if name not in entry_point_names(SPLIT_ENUMERATORS):
        known = ", ".join(entry_point_names(SPLIT_ENUMERATORS)) or "none"
        raise NotInstalledError(
            f"the source of operator '{context.operator_name}' needs the enumerator '{name}', which is not "
            f"installed on the driver; the entry points of '{SPLIT_ENUMERATORS}' there are: {known}"
        )
    return load_entry_point(SPLIT_ENUMERATORS, name)
