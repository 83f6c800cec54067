"""Printed output of user code, on its way from TaskManagers on other hosts to the driver, where no pipe leads.

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
"""Size of the pieces of a line that is longer than a message may be."""
_CLOSE_TIMEOUT_S: Final = 4.0


@dataclass(frozen=True)
class PrintedOutput:
    """Standard output of this process: readable at `descriptor`, up to its end once `finish` was called."""

    descriptor: int
    receiver_address: str
    finish: Callable[[], None]


class OutputSender:
    """A thread that reads, sends and waits: while the driver takes nothing, user code that prints waits, as on a pipe.

    Where the driver cannot be reached, lines are left away, which is logged once: nobody may wait for ever.
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
        """Send what was printed so far, then end; a driver that does not take it in time does not hold us."""
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
    """One per cluster whose TaskManagers share no pipe with the driver. `show` writes lines, and may wait for long.

    Nobody watches it: no job depends on it, and an error of `show` goes to the TaskManager that printed, which logs it.
    """

    def __init__(
        self, rpc_service: RpcService, run_blocking: BlockingRunner, show: Callable[[bytes], None]
    ) -> None:
        super().__init__(rpc_service, rpc_service.create_endpoint_name("output"))
        self._run_blocking: Final = run_blocking
        self._show: Final = show

    def on_fatal_error(self, error: BaseException) -> None:
        """Go on: it keeps nothing that could be wrong now, and no job may end for what it prints."""
        _LOG.error("showing printed lines failed, and goes on", exc_info=error)

    async def receive_output(self, lines: bytes) -> Acknowledge:
        """Show the lines on another thread: a slow reader of the driver's output must not block the main thread."""
        await self._run_blocking("write printed lines", lambda: self._show(lines))
        return Acknowledge()
