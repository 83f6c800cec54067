"""PartitionRequestListener: a partition that was requested before it was registered is waited for.

Source: Flink PartitionRequestListener.
"""

from collections.abc import Callable
from typing import Final

from headrace.core.ids import ResultPartitionId
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.sessions.transport import Transport


class PartitionRequestListener:
    """Waits until the partition is registered or the time is over, whichever is first, or until it is dropped.

    `on_registered` and `on_timeout` are called on the transport's thread, on which all else runs too; the former also
    behind a `drop` that came while the call was on its way.
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
        # One object for both calls: a watcher is known by its identity.
        self._registered: Final = lambda: transport.post(on_registered)
        self._timer: Final = transport.call_later(timeout_ms, on_timeout)
        partitions.watch(partition_id, self._registered)

    def drop(self) -> None:
        """Wait no more. Idempotent."""
        self._timer.cancel()
        self._partitions.unwatch(self._partition_id, self._registered)
