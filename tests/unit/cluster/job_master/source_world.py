"""A coordinator of a source whose enumerator gives out a list of splits, with what it sends and what it lets wait."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.cluster.job_master.coordinators.source_coordinator import SourceCoordinator
from headrace.core.config import Settings
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    JobId,
    JobVertexId,
    OperatorId,
    ResourceId,
)
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.functions.source import (
    RegisterReader,
    RequestSplit,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
    decode_split,
    encode_split,
    event_bytes,
    event_to_reader,
)
from headrace.metrics.groups import MetricGroup

LOCATION = TaskManagerLocation(ResourceId("worker"), "host-1", 1, None, "host-id")


class ListEnumerator(SplitEnumerator):
    """Gives one split per request; where `is_patient`, it does not say that there are no more."""

    def __init__(self, context: SplitEnumeratorContext, content: bytes) -> None:
        count, self.is_patient = msgspec.msgpack.decode(content, type=tuple[int, bool])
        self.context = context
        context.metric_group.gauge("unassignedSplits", lambda: len(self.left))
        self.left = [SourceSplit(f"split-{index}", b"0") for index in range(count)]
        self.notes: list[Any] = []

    def restore(self, state: bytes) -> None:
        self.left = [decode_split(one) for one in msgspec.msgpack.decode(state, type=list[bytes])]

    def start(self) -> None:
        self.notes.append("start")

    def handle_split_request(self, subtask_index: int, host: str) -> None:
        self.notes.append(("request", subtask_index, host))
        if self.left:
            self.context.assign_splits(subtask_index, [self.left.pop(0)])
        elif not self.is_patient:
            self.context.signal_no_more_splits(subtask_index)

    def add_splits_back(self, splits: Sequence[SourceSplit], subtask_index: int) -> None:
        self.left += splits

    def add_reader(self, subtask_index: int) -> None:
        self.notes.append(("reader", subtask_index))

    def handle_source_event(self, subtask_index: int, payload: bytes) -> None:
        self.notes.append(("event", subtask_index, payload))
        self.context.send_source_event(subtask_index, payload[::-1])

    def snapshot_state(self, checkpoint_id: int) -> bytes:
        return msgspec.msgpack.encode([encode_split(split) for split in self.left])

    def close(self) -> None:
        self.notes.append("close")


class LaterByHand:
    """Keeps what is to run later until the test runs it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def schedule(self, delay_ms: float, action: Callable[[], None], /) -> Any:
        self.waiting.append((delay_ms, action))

    def call_blocking(
        self, name: str, work: Callable[[], Any], handler: Callable[[Any, Any], None], /
    ) -> None:
        def run() -> None:
            try:
                result = work()
            except Exception as error:
                handler(None, error)
            else:
                handler(result, None)

        self.waiting.append((0, run))


class World:
    """A coordinator, and what it sends."""

    def __init__(
        self,
        split_count: int,
        parallelism: int = 2,
        is_patient: bool = False,
        location: str = "",
    ) -> None:
        self.sent: list[tuple[int, Any]] = []
        self.backlogs: list[bool] = []
        self.later = LaterByHand()
        self.metrics = MetricGroup()
        self.enumerators: list[ListEnumerator] = []
        self.attempts = [0] * parallelism
        context = CoordinatorContext(
            JobId(bytes(16)),
            OperatorId(bytes(16)),
            "numbers",
            parallelism,
            Settings(),
            send_event=lambda index, payload: self.sent.append((index, event_to_reader(payload))),
            run_async=lambda action: action(),
            fail_job=lambda error: None,
            later=self.later,
            report_backlog=self.backlogs.append,
            location=location,
            metric_group=self.metrics,
        )

        def create(context: SplitEnumeratorContext, content: bytes) -> ListEnumerator:
            self.enumerators.append(ListEnumerator(context, content))
            return self.enumerators[-1]

        self.coordinator = SourceCoordinator(
            context, create, msgspec.msgpack.encode((split_count, is_patient))
        )

    @property
    def enumerator(self) -> ListEnumerator:
        return self.enumerators[-1]

    def attempt(self, index: int) -> ExecutionAttemptId:
        return ExecutionAttemptId(
            JobId(bytes(16)), ExecutionVertexId(JobVertexId(bytes(16)), index), self.attempts[index]
        )

    def tell(self, index: int, event: Any) -> None:
        self.coordinator.handle_event(self.attempt(index), event_bytes(event))

    def run_reader(self, index: int, *, asks: bool = True) -> None:
        self.tell(index, RegisterReader())
        if asks:
            self.tell(index, RequestSplit())
        self.coordinator.subtask_ready(self.attempt(index), LOCATION)

    def fail_reader(self, index: int) -> None:
        self.coordinator.subtask_failed(self.attempt(index))
        self.attempts[index] += 1

    def take_sent(self) -> list[tuple[int, Any]]:
        sent, self.sent = self.sent, []
        return sent


def split(index: int) -> SourceSplit:
    return SourceSplit(f"split-{index}", b"0")
