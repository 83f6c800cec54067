"""OutputReceiver: the endpoint that writes the printed output of TaskManagers on other hosts."""

from collections.abc import Callable
from typing import Final

from headrace.core.threads import BlockingRunner
from headrace.gateways.messages import Acknowledge, WorkerOutputGateway
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.service import RpcService


class OutputReceiver(RpcEndpoint, WorkerOutputGateway):
    """One per cluster whose TaskManagers share no pipe with the driver. `show` writes lines, and may wait for long."""

    def __init__(
        self, rpc_service: RpcService, run_blocking: BlockingRunner, show: Callable[[bytes], None]
    ) -> None:
        super().__init__(rpc_service, rpc_service.create_endpoint_name("output"))
        self._run_blocking: Final = run_blocking
        self._show: Final = show

    async def receive_output(self, lines: bytes) -> Acknowledge:
        """Show the lines on another thread: a slow reader of the driver's output must not block the main thread."""
        await self._run_blocking("write printed lines", lambda: self._show(lines))
        return Acknowledge()
