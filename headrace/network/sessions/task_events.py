"""TaskEventDispatcher: events against the stream, from a consumer to the task that produces for it.

Source: Flink TaskEventDispatcher.
"""

import threading
from collections.abc import Callable

from headrace.core.ids import ResultPartitionId

TaskEventListener = Callable[[bytes], None]
"""Takes an event as its sender encoded it, on any thread; it only hands over to the task."""


class TaskEventDispatcher:
    """Listeners by partition. Any thread."""

    def __init__(self) -> None:
        # Tasks subscribe from their threads, the network thread publishes.
        self._lock = threading.Lock()
        self._listeners: dict[ResultPartitionId, TaskEventListener] = {}

    def subscribe(self, partition_id: ResultPartitionId, listener: TaskEventListener) -> None:
        """Give the events for a partition to `listener`, the only one there."""
        with self._lock:
            assert partition_id not in self._listeners, f"{partition_id} has a listener already"
            self._listeners[partition_id] = listener

    def unsubscribe(self, partition_id: ResultPartitionId) -> None:
        """Forget the listener. Idempotent."""
        with self._lock:
            self._listeners.pop(partition_id, None)

    def publish(self, partition_id: ResultPartitionId, event: bytes) -> bool:
        """Hand an event over; return whether anybody listens."""
        with self._lock:
            listener = self._listeners.get(partition_id)
        if listener is None:
            return False
        listener(event)
        return True
