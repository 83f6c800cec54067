"""A TaskManager that holds more memory than it may is told to end, once and with the figures."""

from collections.abc import Callable
from typing import cast

from headrace.cluster.task_executor.memory_limit import MemoryLimit
from headrace.core.config import Settings
from headrace.rpc.endpoint import RpcEndpoint


class Endpoint:
    """An endpoint that looks again when it is told to."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = Settings(settings)
        self.scheduled: list[Callable[[], None]] = []

    def schedule_run_async(self, delay_ms: float, action: Callable[[], None]) -> None:
        self.scheduled.append(action)


def watched(endpoint: Endpoint, *sizes: int) -> list[str]:
    left, told = list(sizes), list[str]()
    limit = MemoryLimit(cast("RpcEndpoint", endpoint), told.append, lambda: left.pop(0))
    limit.watch()
    while endpoint.scheduled:
        endpoint.scheduled.pop()()
    assert left == []
    return told


def test_it_is_told_to_end_at_the_first_look_above_the_limit() -> None:
    endpoint = Endpoint({"headrace.taskmanager.memory.limit": "1 gb"})
    [told] = watched(endpoint, 1 << 20, 1 << 30, (1 << 30) + 1)
    assert "headrace.taskmanager.memory.limit" in told


def test_without_a_limit_nobody_looks() -> None:
    assert watched(Endpoint({})) == []
