"""ShuffleServiceProcess: runs a shuffle service in this process, with the thread for calls and the data plane."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.randomness import system_random
from headrace.core.security.tls import TlsIdentity
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.threads import EventLoopThread
from headrace.rpc.tcp import TcpRpcService
from headrace.shuffle_service.endpoint import ShuffleServiceEndpoint
from headrace.shuffle_service.options import DIRECTORY, RPC_PORT
from headrace.shuffle_service.service import ShuffleService

_CLOSE_TIMEOUT_S: Final = 10.0


class ShuffleServiceProcess:
    """Context manager that recovers committed results and listens on entry, and closes on exit; files stay.

    `on_fatal_error`: called on any thread with an error from which the service cannot recover; it must end the process.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        secret: bytes,
        bind_host: str = "127.0.0.1",
        advertised_host: str | None = None,
        socket_directory: Path | None = None,
        tls: TlsIdentity | None = None,
        on_fatal_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        directory = settings.get_option(DIRECTORY)
        if not directory:
            raise ConfigurationError(
                DIRECTORY.key, directory, "a shuffle service needs a directory"
            )
        self._settings: Final = settings
        self._secret: Final = secret
        self._bind_host: Final = bind_host
        self._advertised_host: Final = advertised_host or bind_host
        self._tls: Final = tls
        self._clock: Final = SystemClock()
        self.service: Final = ShuffleService(
            settings,
            directory=Path(directory),
            secret=secret,
            bind_host=bind_host,
            advertised_host=self._advertised_host,
            clock=self._clock,
            random=system_random(),
            socket_directory=socket_directory,
            tls=tls,
            on_fatal_error=on_fatal_error,
        )
        self._on_fatal_error: Final = on_fatal_error
        self._control: EventLoopThread | None = None
        self._rpc: TcpRpcService | None = None

    @property
    def address(self) -> str:
        """Return the address that clusters set as `shuffle-service.address`."""
        assert self._rpc is not None, "enter first"
        return self._rpc.address

    @property
    def location(self) -> TaskManagerLocation:
        """Return the location of the data plane, to which producers push and from which consumers read."""
        return self.service.location

    def __enter__(self) -> Self:
        self._control = EventLoopThread("headrace-shuffle-service")
        self._control.on_fatal_error = self._on_fatal_error
        try:
            self.service.start()
            self._rpc = self._control.run(self._serve())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End calls, connections and threads. Idempotent."""
        control, self._control = self._control, None
        if control is None:
            return
        rpc = self._rpc
        try:
            if rpc is not None:
                control.run(rpc.stop(), _CLOSE_TIMEOUT_S)
        finally:
            control.stop()
            self.service.close()

    async def _serve(self) -> TcpRpcService:
        rpc = TcpRpcService(
            self._settings,
            bind_host=self._bind_host,
            advertised_host=self._advertised_host,
            port_option=RPC_PORT,
            secret=self._secret,
            clock=self._clock,
            random=system_random(),
            tls=self._tls,
        )
        await rpc.start()
        ShuffleServiceEndpoint(rpc, self.service).start()
        return rpc
