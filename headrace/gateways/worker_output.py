"""WorkerOutputGateway: takes what TaskManagers print, in the driver."""

from typing import Protocol

from headrace.gateways.messages import Acknowledge


class WorkerOutputGateway(Protocol):
    """The endpoint in the driver that writes to the program's standard output."""

    async def receive_output(self, lines: bytes) -> Acknowledge:
        """Write whole lines; answered once they are written, so that who prints waits for who reads."""
        ...
