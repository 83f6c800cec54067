"""WorkerOutputGateway: receives the lines that user code prints in TaskManagers, in the driver."""

from typing import Protocol

from headrace.gateways.messages import Acknowledge


class WorkerOutputGateway(Protocol):
    """The endpoint in the driver that writes to the program's standard output."""

    async def receive_output(self, lines: bytes) -> Acknowledge:
        """Write whole lines; answers once they are written, so that a fast writer waits for the reader."""
        ...
