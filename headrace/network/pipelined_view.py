"""A consumer's view of a pipelined subpartition: what it returns is gone. Source: Flink PipelinedSubpartitionView."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from headrace.network.subpartition import SubpartitionView

if TYPE_CHECKING:
    from headrace.network.pipelined_subpartition import PipelinedSubpartition


class AttachedView(SubpartitionView, Protocol):
    """A view that can be told that there is something."""

    @property
    def listener(self) -> Callable[[], None]:
        """To be called when data comes to an empty queue."""
        ...


class PipelinedSubpartitionView:
    """See SubpartitionView."""

    def __init__(self, subpartition: "PipelinedSubpartition", listener: Callable[[], None]) -> None:
        self._subpartition = subpartition
        self.listener: Final = listener
        self.poll: Final = subpartition.poll
        self.resume: Final = subpartition.resume
        self.acknowledge_all_data: Final = subpartition.acknowledge_all_data
        self.notify_in_flight_rows: Final = subpartition.notify_in_flight_rows

    @property
    def queued_count(self) -> int:
        """See SubpartitionView."""
        return self._subpartition.queued_count

    @property
    def queued_bytes(self) -> int:
        """See SubpartitionView."""
        return self._subpartition.queued_bytes

    @property
    def has_priority_event(self) -> bool:
        """See SubpartitionView."""
        return self._subpartition.has_priority_event

    @property
    def backlog(self) -> int:
        """See SubpartitionView."""
        return self._subpartition.backlog

    def release(self) -> None:
        """See SubpartitionView. The subpartition drops what it holds and whatever is added."""
        self._subpartition.release()
