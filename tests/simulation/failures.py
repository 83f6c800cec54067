"""Ways in which an endpoint fails from within."""

from collections.abc import Callable
from typing import Final

from headrace.rpc.endpoint import RpcEndpoint


def bug() -> None:
    raise LookupError("a bug in the control plane")


async def failing_task() -> None:
    bug()


WAYS: Final[dict[str, Callable[[RpcEndpoint], object]]] = {
    "an action": lambda endpoint: endpoint.run_async(bug),
    "a timer": lambda endpoint: endpoint.schedule_run_async(1, bug),
    "a task": lambda endpoint: endpoint.spawn(failing_task(), "a task"),
    "its end": lambda endpoint: endpoint.close_async(),
}
