"""PendingChannelMessages: what the consumer of a channel says before there is anybody to hear it.

Either side may be early: the consumer before its connection stands, the producer's connection before the partition is
there. The newest wish for rows in flight counts; task events are told in their order. Source: Flink
UnknownInputChannel, which replays task events.
"""

from collections.abc import Callable
from typing import Final

EARLY_TASK_EVENTS_MAX: Final = 64


class PendingChannelMessages:
    """Of one channel. The transport's thread."""

    __slots__ = ("_task_events", "in_flight_rows")

    def __init__(self) -> None:
        self.in_flight_rows: int | None = None
        """What should be between the two tasks, as it was wished for last. Told again on a new connection."""
        self._task_events: list[bytes] = []

    def keep_task_event(self, event: bytes) -> bool:
        """Keep an event until `tell`; False where so many wait that this one is lost."""
        is_kept = len(self._task_events) < EARLY_TASK_EVENTS_MAX
        if is_kept:
            self._task_events.append(event)
        return is_kept

    def tell(
        self, request_in_flight_rows: Callable[[int], None], send_event: Callable[[bytes], None]
    ) -> list[bytes]:
        """Say it all to who is there now; return the events, which are not kept any longer."""
        if self.in_flight_rows is not None:
            request_in_flight_rows(self.in_flight_rows)
        events, self._task_events = self._task_events, []
        for event in events:
            send_event(event)
        return events
