"""The simulated transport on a thread of its own and in real time, so that one suite can hold it to what sockets do."""

from collections.abc import Callable

from headrace.core.clock import Cancellable
from headrace.network.trace.simulated_transport import SimulatedNetwork, SimulatedTransport
from headrace.network.transport.socket_transport import NetworkThread


class _Posted:
    """Runs as soon as the thread comes to it; nobody takes it back."""

    def cancel(self) -> None: ...


class ThreadedSimulation:
    """A SimulatedNetwork whose callbacks run on one thread. Stop it after everything that uses it."""

    def __init__(self) -> None:
        self.thread = NetworkThread("simulated network")
        self.network = SimulatedNetwork(self._schedule)

    def create_transport(self) -> SimulatedTransport:
        """Return the transport of one more TaskManager."""
        return _ThreadedTransport(self)

    def stop(self) -> None:
        """End the thread."""
        self.thread.stop()

    def _schedule(self, delay_ms: float, callback: Callable[[], None]) -> Cancellable:
        if delay_ms > 0:
            return self.thread.call_later(delay_ms, callback)
        self.thread.post(callback)
        return _Posted()


class _ThreadedTransport(SimulatedTransport):
    def __init__(self, simulation: ThreadedSimulation) -> None:
        super().__init__(simulation.network)
        self._thread = simulation.thread

    def close(self) -> None:
        """See Transport. What a task posts afterwards has to be over when its environment is examined."""
        self._thread.run(self._close(), 10)

    async def _close(self) -> None:
        super().close()
