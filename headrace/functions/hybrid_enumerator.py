"""HybridEnumerator: runs the enumerators of several sources one after the other, for a HybridSource.

Readers read the first source; once all of them have, they are switched to the next. It exchanges HybridEvents with
readers. Source: Flink HybridSourceSplitEnumerator (FLIP-150).
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from headrace.core.config import Settings
from headrace.functions.runtime_context import UserMetricGroup
from headrace.functions.source import (
    EnumeratorPayload,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
)

T = TypeVar("T")

HYBRID_ENUMERATOR: Final = "hybrid"
"""Name of the built-in enumerator: it needs the factories of the others, which only the coordinator knows."""
_CONTENT: Final = msgspec.msgpack.Decoder(tuple[int, bytes])
EnumeratorMaker = Callable[[SplitEnumeratorContext, EnumeratorPayload], SplitEnumerator]
"""Function that makes the enumerator of one source."""


class HybridEnumeration(msgspec.Struct, frozen=True, array_like=True):
    """The enumerator of each source, or None for a source whose readers need none."""

    sources: tuple[EnumeratorPayload | None, ...]


class HybridState(msgspec.Struct, frozen=True, array_like=True):
    """State of a hybrid source's enumerator: the index of the current source and the state of its enumerator."""

    source_index: int
    content: bytes | None


class ReaderBegins(msgspec.Struct, frozen=True, array_like=True, tag="begins"):
    """Reader → enumerator: the reader continues with that source; -1 if its checkpoint was empty."""

    source_index: int


class SourceFinished(msgspec.Struct, frozen=True, array_like=True, tag="finished"):
    """Reader → enumerator: the reader has read its share of that source."""

    source_index: int


class SwitchSource(msgspec.Struct, frozen=True, array_like=True, tag="switch"):
    """Enumerator → reader: read that source from now on."""

    source_index: int


class SourceWords(msgspec.Struct, frozen=True, array_like=True, tag="words"):
    """Message in either direction between a source's own enumerator and its readers."""

    payload: bytes


HybridEvent = ReaderBegins | SourceFinished | SwitchSource | SourceWords
_EVENT: Final = msgspec.msgpack.Decoder[Any](HybridEvent)


def hybrid_event(payload: bytes) -> HybridEvent:
    """Read an event; msgspec.ValidationError for anything else."""
    return _EVENT.decode(payload)


def tagged_split(source_index: int, split: SourceSplit) -> SourceSplit:
    """Return a split of one source, tagged with the source's index."""
    content = msgspec.msgpack.encode((source_index, split.content))
    return SourceSplit(f"{source_index}/{split.split_id}", content)


def untagged_split(split: SourceSplit) -> tuple[int, SourceSplit]:
    """Decode a split made by `tagged_split`."""
    source_index, content = _CONTENT.decode(split.content)
    return source_index, SourceSplit(split.split_id.partition("/")[2], content)


class HybridEnumerator(SplitEnumerator):
    """Runs one enumerator at a time. A restarted reader first reads its missing splits of earlier sources."""

    def __init__(
        self, context: SplitEnumeratorContext, enumeration: HybridEnumeration, make: EnumeratorMaker
    ) -> None:
        self._context = context
        self._sources = enumeration.sources
        self._make = make
        self._index = 0
        self._child: SplitEnumerator | None = None
        # Which source each registered reader reads, and which ones have read the present one.
        self.reading: dict[int, int] = {}
        self._finished: set[int] = set()
        self._begins: dict[int, int] = {}
        # Splits of earlier sources that a reader had and lost, by reader and source.
        self._lost: dict[int, dict[int, list[SourceSplit]]] = {}

    @property
    def source_index(self) -> int:
        """Index of the source that is being read."""
        return self._index

    def restore(self, state: bytes) -> None:
        restored = msgspec.msgpack.decode(state, type=HybridState)
        self._index = restored.source_index
        self._child = self._new_child()
        if self._child is not None and restored.content is not None:
            self._child.restore(restored.content)

    def start(self) -> None:
        if self._child is None:
            self._child = self._new_child()
        if self._child is not None:
            self._child.start()

    def add_reader(self, subtask_index: int) -> None:
        self._finished.discard(subtask_index)
        begins = self._begins.pop(subtask_index, -1)
        lost = min(self._lost.get(subtask_index, {}), default=self._index)
        self._switch(subtask_index, min(self._index if begins < 0 else begins, lost))

    def handle_split_request(self, subtask_index: int, host: str) -> None:
        if self._child is not None and self.reading.get(subtask_index) == self._index:
            self._child.handle_split_request(subtask_index, host)
        else:
            self._context.signal_no_more_splits(subtask_index)

    def add_splits_back(self, splits: Sequence[SourceSplit], subtask_index: int) -> None:
        self.reading.pop(subtask_index, None)
        present: list[SourceSplit] = []
        for tagged in splits:
            source_index, split = untagged_split(tagged)
            if source_index == self._index:
                present.append(split)
            else:
                lost = self._lost.setdefault(subtask_index, {})
                lost.setdefault(source_index, []).append(tagged)
        if present:
            assert self._child is not None
            self._child.add_splits_back(present, subtask_index)

    def handle_source_event(self, subtask_index: int, payload: bytes) -> None:
        match hybrid_event(payload):
            case ReaderBegins(source_index):
                self.reading.pop(subtask_index, None)
                self._begins[subtask_index] = source_index
            case SourceFinished(source_index) if source_index < self._index:
                self._switch(subtask_index, source_index + 1)
            case SourceFinished():
                self._finished.add(subtask_index)
                self._switch_all()
            case SourceWords(content):
                if self._child is not None and self.reading.get(subtask_index) == self._index:
                    self._child.handle_source_event(subtask_index, content)
            case SwitchSource():
                raise AssertionError("readers must not switch by themselves")

    def snapshot_state(self, checkpoint_id: int) -> bytes:
        content = None if self._child is None else self._child.snapshot_state(checkpoint_id)
        return msgspec.msgpack.encode(HybridState(self._index, content))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if self._child is not None:
            self._child.notify_checkpoint_complete(checkpoint_id)

    def close(self) -> None:
        if self._child is not None:
            self._child.close()

    def _switch_all(self) -> None:
        """Switch to the next source once every reader has finished the current one."""
        is_last = self._index == len(self._sources) - 1
        if is_last or len(self._finished) < self._context.parallelism:
            return
        self.close()
        self._finished.clear()
        self._index += 1
        self._child = self._new_child()
        if self._child is not None:
            self._child.start()
        for subtask_index in self._context.registered_readers:
            self._switch(subtask_index, self._index)

    def _switch(self, subtask_index: int, source_index: int) -> None:
        self.reading[subtask_index] = source_index
        self._say(subtask_index, SwitchSource(source_index))
        lost = self._lost.get(subtask_index, {}).pop(source_index, [])
        if lost:
            self._context.assign_splits(subtask_index, lost)
        if source_index == self._index and self._child is not None:
            self._child.add_reader(subtask_index)

    def _say(self, subtask_index: int, event: HybridEvent) -> None:
        self._context.send_source_event(subtask_index, msgspec.msgpack.encode(event))

    def _new_child(self) -> SplitEnumerator | None:
        described = self._sources[self._index]
        if described is None:
            return None
        return self._make(_SourceContext(self._context, self, self._index), described)


class _SourceContext:
    """Context of one source's enumerator, valid while that source is read. Implements SplitEnumeratorContext."""

    def __init__(
        self, context: SplitEnumeratorContext, hybrid: HybridEnumerator, source_index: int
    ) -> None:
        self._context = context
        self._hybrid = hybrid
        self._index = source_index

    @property
    def parallelism(self) -> int:
        return self._context.parallelism

    @property
    def settings(self) -> Settings:
        return self._context.settings

    @property
    def metric_group(self) -> UserMetricGroup:
        return self._context.metric_group

    @property
    def registered_readers(self) -> Sequence[int]:
        reading = self._hybrid.reading
        readers = self._context.registered_readers
        return [one for one in readers if reading.get(one) == self._index]

    def assign_splits(self, subtask_index: int, splits: Sequence[SourceSplit]) -> None:
        self._context.assign_splits(
            subtask_index, [tagged_split(self._index, split) for split in splits]
        )

    def signal_no_more_splits(self, subtask_index: int) -> None:
        self._context.signal_no_more_splits(subtask_index)

    def send_source_event(self, subtask_index: int, payload: bytes) -> None:
        words = msgspec.msgpack.encode(SourceWords(payload))
        self._context.send_source_event(subtask_index, words)

    def set_is_processing_backlog(self, is_processing_backlog: bool) -> None:
        self._context.set_is_processing_backlog(is_processing_backlog)

    def call_async(
        self,
        work: Callable[[], T],
        handler: Callable[[T | None, BaseException | None], None],
        *,
        delay_ms: float = 0,
    ) -> None:
        def handle(result: T | None, error: BaseException | None) -> None:
            if self._hybrid.source_index == self._index:
                handler(result, error)

        self._context.call_async(work, handle, delay_ms=delay_ms)
