"""MemoryLimit: ends a TaskManager that holds more memory than it may, with the cause for its tasks.

The kernel would end whichever process of the host it likes, without a word; and a limit of the address space would
count what is only reserved.
"""

from collections.abc import Callable
from typing import Final

from headrace.core.config import ConfigOption, SizeBytes
from headrace.core.ids import size_text
from headrace.core.process.process_memory import resident_memory_bytes
from headrace.rpc.endpoint import RpcEndpoint

MEMORY_LIMIT: Final = ConfigOption[SizeBytes | None](
    "headrace.taskmanager.memory.limit",
    SizeBytes,
    None,
    "Memory that a TaskManager's process may hold; one that holds more ends, and its tasks fail with that cause. Where "
    "each TaskManager serves one job, a job that grows harms no other. Unset: on Spark "
    "`taskmanager.memory.process.size` where that is set, else what the host has.",
)
INTERVAL_MS: Final = 500.0


class MemoryLimit:
    """Used on the main thread of `endpoint`. `on_exceeded` is called once, with what is to be told."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        on_exceeded: Callable[[str], None],
        measure: Callable[[], int] = resident_memory_bytes,
    ) -> None:
        self._endpoint: Final = endpoint
        self._limit_bytes: Final = endpoint.settings.get_option(MEMORY_LIMIT)
        self._on_exceeded: Final = on_exceeded
        self._measure: Final = measure

    def watch(self) -> None:
        """Look now, and again and again."""
        if self._limit_bytes is None:
            return
        held_bytes = self._measure()
        if held_bytes > self._limit_bytes:
            self._on_exceeded(
                f"its process holds {size_text(held_bytes)} of memory and may hold {size_text(self._limit_bytes)} "
                f"('{MEMORY_LIMIT.key}')"
            )
            return
        self._endpoint.schedule_run_async(INTERVAL_MS, self.watch)
