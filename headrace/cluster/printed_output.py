"""Printed output of user code: sent to the driver from TaskManagers on other hosts, which share no pipe with it.

OutputSender sends the standard output of a TaskManager; OutputReceiver is the driver's endpoint that writes it.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headrace.core.errors import HeadraceError
from headrace.core.threads import BlockingRunner, EventLoopThread, start_thread
from headrace.gateways.messages import Acknowledge
from headrace.gateways.worker_output import WorkerOutputGateway
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.proxies import NO_TIMEOUT_MS, with_timeout
from headrace.rpc.service import RpcService

_LOG: Final = logging.getLogger(__name__)

_READ_SIZE_BYTES: Final = 1 << 16
_PIECE_SIZE_BYTES: Final = 1 << 19
"""Size in bytes of the pieces of a line that exceeds the size of a message."""
_CLOSE_TIMEOUT_S: Final = 4.0


@dataclass(frozen=True)
class PrintedOutput:
    """Standard output of this process, readable at `descriptor` until the end that `finish` marks."""

    descriptor: int
    receiver_address: str
    finish: Callable[[], None]


class OutputSender:
    """Thread that sends printed output; while the driver accepts nothing, user code that prints waits, as on a pipe.

    If the driver cannot be reached, lines are dropped, which is logged once, so that printing never waits forever.
    """

    def __init__(
        self, output: PrintedOutput, control: EventLoopThread, rpc_service: RpcService
    ) -> None:
        self._output: Final = output
        self._control: Final = control
        self._rpc_service: Final = rpc_service
        self._gateway: WorkerOutputGateway | None = None
        self._is_refused = False
        self._thread: Final = start_thread("headrace-output", self._run)

    def close(self) -> None:
        """Send the lines printed so far, then end.

        A driver that does not accept them in time does not delay the end further.
        """
        self._output.finish()
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        begun = b""
        while content := os.read(self._output.descriptor, _READ_SIZE_BYTES):
            whole, newline, begun = (begun + content).rpartition(b"\n")
            self._send(whole + newline)
        self._send(begun)

    def _send(self, lines: bytes) -> None:
        for begin in range(0, 0 if self._is_refused else len(lines), _PIECE_SIZE_BYTES):
            try:
                self._control.run(self._deliver(lines[begin : begin + _PIECE_SIZE_BYTES]))
            except HeadraceError as error:
                self._is_refused = True
                _LOG.warning("printed lines no longer reach the driver: %s", error)
                return

    async def _deliver(self, lines: bytes) -> None:
        if self._gateway is None:
            gateway = await self._rpc_service.connect(
                self._output.receiver_address, WorkerOutputGateway
            )
            self._gateway = with_timeout(gateway, NO_TIMEOUT_MS)
        await self._gateway.receive_output(lines)


class OutputReceiver(RpcEndpoint, WorkerOutputGateway):
    """Writes printed lines of TaskManagers that share no pipe with the driver. `show` writes lines, and may block long.

    Failures do not matter to jobs: an error of `show` goes to the TaskManager that sent the lines, which logs it.
    """

    def __init__(
        self, rpc_service: RpcService, run_blocking: BlockingRunner, show: Callable[[bytes], None]
    ) -> None:
        super().__init__(rpc_service, rpc_service.create_endpoint_name("output"))
        self._run_blocking: Final = run_blocking
        self._show: Final = show

    def on_fatal_error(self, error: BaseException) -> None:
        """Continue: this endpoint has no state that could be wrong, and no job may fail because of its output."""
        _LOG.error("could not show printed lines; later ones are still shown", exc_info=error)

    async def receive_output(self, lines: bytes) -> Acknowledge:
        """Show the lines on another thread, so that a slow reader of the output does not block the main thread."""
        await self._run_blocking("write printed lines", lambda: self._show(lines))
        return Acknowledge()
