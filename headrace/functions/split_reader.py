"""SplitReader: base of readers that get their splits from an enumerator. Source: Flink SourceReaderBase."""

from abc import abstractmethod
from collections.abc import Sequence

from headrace.functions.source import SourceReader
from headrace.functions.split_enumerator import (
    AddSplits,
    ConnectorEvent,
    NoMoreSplits,
    RegisterReader,
    RequestSplit,
    SourceSplit,
    decode_split,
    event_bytes,
    event_to_reader,
)
from headrace.functions.subtask_context import SubtaskContext


class SplitReader(SourceReader):
    """Takes what the coordinator says apart; whoever extends it keeps the splits and reads them.

    A split that was given and one that was restored are the same kind of value; `snapshot_state` returns, for each
    split that has not ended, `encode_split` of it.
    """

    def __init__(self, context: SubtaskContext) -> None:
        self.context = context
        self.has_no_more_splits = False
        """Whether the enumerator has nothing left for this reader."""

    def start(self) -> None:
        """Tell the enumerator that there is a reader; whoever overrides this calls it first."""
        self.context.send_event(event_bytes(RegisterReader()))

    @abstractmethod
    def add_splits(self, splits: Sequence[SourceSplit]) -> None:
        """Read these too, each from its position."""

    def handle_source_event(self, payload: bytes) -> None:
        """The enumerator says something of the connector's own."""
        raise AssertionError(f"{type(self).__name__} expects no events")

    def request_split(self) -> None:
        """Ask for another split; each answer is one AddSplits or one NoMoreSplits, sooner or later."""
        self.context.send_event(event_bytes(RequestSplit()))

    def send_source_event(self, payload: bytes) -> None:
        """Say something of the connector's own to the enumerator."""
        self.context.send_event(event_bytes(ConnectorEvent(payload)))

    def handle_event(self, payload: bytes) -> None:
        match event_to_reader(payload):
            case AddSplits(splits):
                self.add_splits(splits)
            case NoMoreSplits():
                self.has_no_more_splits = True
            case ConnectorEvent(content):
                self.handle_source_event(content)
        self.context.wake()

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        self.add_splits([decode_split(state) for state in splits])
