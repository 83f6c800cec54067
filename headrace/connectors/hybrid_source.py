"""HybridSource: reads several sources one after the other, such as old files and then a topic.

Source: Flink HybridSource (FLIP-150).
"""

from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from headrace.core.errors import ProgramError
from headrace.core.record_batch import RecordBatch
from headrace.core.types.type_info import TypeInformation
from headrace.functions.hybrid_enumerator import (
    HYBRID_ENUMERATOR,
    HybridEnumeration,
    HybridEvent,
    ReaderBegins,
    SourceFinished,
    SourceWords,
    SwitchSource,
    hybrid_event,
    untagged_split,
)
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import (
    AddSplits,
    Boundedness,
    ConnectorEvent,
    EnumeratorPayload,
    InputStatus,
    NoMoreSplits,
    RegisterReader,
    Source,
    SourceOutput,
    SourceReader,
    SplitSource,
    event_bytes,
    event_to_coordinator,
    event_to_reader,
)

_ITEM: Final = msgspec.msgpack.Decoder(tuple[int, bytes | None])


class HybridSource(SplitSource):
    """Reads bounded sources to their ends, in order, and then the last one, which may be endless.

    All readers finish a source before any of them begins the next. The guarantee is exactly once if that of each source
    is.

    Example:
        >>> from headrace.connectors.datagen.source import NumberSequenceSource
        >>> both = HybridSource.builder(NumberSequenceSource(1, 9)).add_source(NumberSequenceSource(10, 99)).build()
        >>> both.boundedness.name
        'BOUNDED'
    """

    def __init__(self, sources: tuple[Source, ...]) -> None:
        self._sources = sources

    @staticmethod
    def builder(first_source: Source) -> "HybridSourceBuilder":
        """Return a builder with the source that is read first."""
        return HybridSourceBuilder().add_source(first_source)

    @property
    def boundedness(self) -> Boundedness:
        return self._sources[-1].boundedness

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._sources[0].produced_type

    def enumerator(self) -> tuple[str, bytes]:
        described = [
            EnumeratorPayload(*one.enumerator()) if isinstance(one, SplitSource) else None
            for one in self._sources
        ]
        return HYBRID_ENUMERATOR, msgspec.msgpack.encode(HybridEnumeration(tuple(described)))

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        return HybridReader(self._sources, context)


class HybridSourceBuilder:
    """Builds a HybridSource."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def add_source(self, source: Source) -> "HybridSourceBuilder":
        """Add a source that is read after the previous ones. ProgramError if it cannot be combined with them."""
        if not isinstance(source, Source):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a HybridSource is made of Sources, not of {source!r}")
        if source.coordinator() is not None and not isinstance(source, SplitSource):
            raise ProgramError(
                f"{type(source).__name__} cannot be part of a HybridSource, because it has a coordinator of its own: "
                "use a source with splits, such as FileSource or KafkaSource"
            )
        if self._sources and self._sources[-1].boundedness is not Boundedness.BOUNDED:
            raise ProgramError("only the last source of a HybridSource may be endless")
        types = {one.produced_type for one in (*self._sources, source)}
        if len(types) > 1:
            raise ProgramError(
                f"the sources of a HybridSource must have the same type, not {' and '.join(sorted(map(str, types)))}"
            )
        self._sources.append(source)
        return self

    def build(self) -> HybridSource:
        return HybridSource(tuple(self._sources))


class HybridReader(SourceReader):
    """Runs the reader of one source at a time, and asks the enumerator when to switch to the next."""

    def __init__(self, sources: tuple[Source, ...], context: SubtaskContext) -> None:
        self._sources = sources
        self._context = context
        self._index = 0
        # The latest source that was begun here, and is read or has ended; -1 of none.
        self._begun = -1
        # True once the enumerator has answered the start; before that it ignores ends of readers.
        self._is_answered = False
        self._reader: SourceReader | None = None
        self._output = _SourceOutput()
        # Source index (-1: none) and items of the restored checkpoint, until the current source is known.
        self._restored: tuple[int, list[bytes]] | None = None

    def start(self) -> None:
        self._context.send_event(event_bytes(RegisterReader()))
        self._say(ReaderBegins(0 if self._restored is None else self._restored[0]))
        if self._restored is None and not isinstance(self._sources[0], SplitSource):
            # Its share is its own from the beginning, and must be in every checkpoint.
            self._begin(0)

    def handle_event(self, payload: bytes) -> None:
        match event_to_reader(payload):
            case AddSplits(splits):
                own = tuple(untagged_split(split)[1] for split in splits)
                self._present().handle_event(event_bytes(AddSplits(own)))
            case NoMoreSplits():
                self._present().handle_event(payload)
            case ConnectorEvent(content):
                self._take(hybrid_event(content))
        self._context.wake()

    def poll_next(self, output: SourceOutput) -> InputStatus:
        if self._reader is None:
            return InputStatus.NOTHING_AVAILABLE
        status = self._reader.poll_next(self._output.over(output, self._index))
        if status is not InputStatus.END_OF_INPUT or self._index == len(self._sources) - 1:
            return status
        self._reader.close()
        self._reader = None
        if self._is_answered:
            self._say(SourceFinished(self._index))
        return InputStatus.NOTHING_AVAILABLE

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        if self._restored is not None:
            index, items = self._restored
        else:
            index = self._index
            items = [] if self._reader is None else self._reader.snapshot_state(checkpoint_id)
        # The first item names the reader's source, in case it has no splits.
        return [msgspec.msgpack.encode((index, item)) for item in (None, *items)]

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        decoded = [_ITEM.decode(split) for split in splits]
        index = max((index for index, _ in decoded), default=-1)
        self._restored = index, [item for _, item in decoded if item is not None]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if self._reader is not None:
            self._reader.notify_checkpoint_complete(checkpoint_id)

    def pause_or_resume_splits(self, to_pause: Sequence[str], to_resume: Sequence[str]) -> None:
        if self._reader is not None:
            mark = f"{self._index}/"
            self._reader.pause_or_resume_splits(
                [one.removeprefix(mark) for one in to_pause if one.startswith(mark)],
                [one.removeprefix(mark) for one in to_resume if one.startswith(mark)],
            )

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _take(self, event: HybridEvent) -> None:
        match event:
            case SwitchSource(source_index):
                self._switch(source_index)
            case SourceWords(payload):
                self._present().handle_event(event_bytes(ConnectorEvent(payload)))
            case ReaderBegins() | SourceFinished():
                raise AssertionError("only readers say so")

    def _switch(self, source_index: int) -> None:
        """Start a source, unless it was started before: the answer to an earlier request may arrive after its end."""
        was_answered, self._is_answered = self._is_answered, True
        if source_index > self._begun:
            self._begin(source_index)
        elif not was_answered and self._reader is None:
            self._say(SourceFinished(self._index))

    def _begin(self, source_index: int) -> None:
        assert self._reader is None, (
            f"source {self._index} is still being read, so source {source_index} cannot start"
        )
        reader = self._sources[source_index].create_reader(_as_context(self._context))
        restored, self._restored = self._restored, None
        # A state that is of no source is that of a reader that there was not: nothing is its share.
        if restored is not None and restored[0] in (-1, source_index):
            reader.restore_splits(restored[1])
        self._index = self._begun = source_index
        self._reader = reader
        reader.start()

    def _present(self) -> SourceReader:
        assert self._reader is not None, (
            "events and splits arrive only for a source that is being read"
        )
        return self._reader

    def _say(self, event: HybridEvent) -> None:
        self._context.send_event(event_bytes(ConnectorEvent(msgspec.msgpack.encode(event))))


def _as_context(context: SubtaskContext) -> SubtaskContext:
    return cast(SubtaskContext, _SourceContext(context))


class _SourceContext:
    """Context of the reader of one source, whose events go through the HybridReader. Implements SubtaskContext."""

    def __init__(self, context: SubtaskContext) -> None:
        self._context: Any = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def send_event(self, payload: bytes) -> None:
        """Pass a reader's event on; one registration serves all readers."""
        match event_to_coordinator(payload):
            case RegisterReader():
                return
            case ConnectorEvent(content):
                words = msgspec.msgpack.encode(SourceWords(content))
                self._context.send_event(event_bytes(ConnectorEvent(words)))
            case _:
                self._context.send_event(payload)


class _SourceOutput:
    """Output for the reader of one source: adds the source to split ids, so that they do not collide.

    The splits that an ended source left are released once the next source has splits, or rows without a split; until
    then they hold the watermark back. Implements SourceOutput.
    """

    def __init__(self) -> None:
        self._output: Any = None
        self._held: set[str] = set()
        self._mark = ""

    def over(self, output: SourceOutput, source_index: int) -> "_SourceOutput":
        """Return the output for a source, on top of the operator's output."""
        self._output = output
        self._mark = f"{source_index}/"
        return self

    @property
    def rows_wanted(self) -> int:
        return self._output.rows_wanted

    def emit(self, batch: RecordBatch, split_id: str = "", /) -> None:
        self._release_earlier()
        self._output.emit(batch, f"{self._mark}{split_id}" if split_id else "")

    def add_split(self, split_id: str, /) -> None:
        self._output.add_split(self._mark + split_id)
        self._held.add(self._mark + split_id)
        self._release_earlier()

    def release_split(self, split_id: str, /) -> None:
        self._output.release_split(self._mark + split_id)
        self._held.discard(self._mark + split_id)

    def _release_earlier(self) -> None:
        for held in [one for one in self._held if not one.startswith(self._mark)]:
            self._output.release_split(held)
            self._held.discard(held)
