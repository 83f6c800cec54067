"""PartitionRequestListener: waits for a partition that was requested before it was registered.

Source: Flink PartitionRequestListener.
"""

from collections.abc import Callable
from typing import Final

from headrace.core.ids import ResultPartitionId
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.sessions.transport import Transport


class PartitionRequestListener:
    """Waits until the partition is registered, the time-out passes, or `drop` is called, whichever is first.

    `on_registered` and `on_timeout` are called on the transport's thread, on which everything else runs too;
    `on_registered` may still be called after `drop` if the call was already posted.
    """

    def __init__(
        self,
        partition_id: ResultPartitionId,
        partitions: ResultPartitionManager,
        transport: Transport,
        timeout_ms: float,
        on_registered: Callable[[], None],
        on_timeout: Callable[[], None],
    ) -> None:
        self._partition_id: Final = partition_id
        self._partitions: Final = partitions
        # One object for both calls: a watcher is identified by its identity.
        self._registered: Final = lambda: transport.post(on_registered)
        self._timer: Final = transport.call_later(timeout_ms, on_timeout)
        partitions.watch(partition_id, self._registered)

    def drop(self) -> None:
        """Stop waiting. Idempotent."""
        self._timer.cancel()
        self._partitions.unwatch(self._partition_id, self._registered)
