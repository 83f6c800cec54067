"""RestServer: the HttpServer of a cluster, with its dashboard, its programs and its operations."""

import contextlib
import logging
from typing import Final

from headrace.core.clock import Clock
from headrace.core.config import Settings, parse_ports
from headrace.core.errors import ConfigurationError
from headrace.core.process.process_profiler import PROFILING_OPTIONS
from headrace.core.security.tls import TlsIdentity
from headrace.rest.authentication import AsgiApplication, RestGuard, guard_of
from headrace.rest.client_errors import ConnectionFileError, HomeFolderError
from headrace.rest.cluster_view import ClusterView, ControlPlane
from headrace.rest.flame_graph_sampler import FLAME_GRAPH_OPTIONS
from headrace.rest.http_server import HttpServer, ListeningPlace
from headrace.rest.operations import Operations
from headrace.rest.options import (
    ASYNC_STORE_DURATION,
    OPTIONS,
    REST_ADDRESS,
    REST_BIND_ADDRESS,
    REST_BIND_PORT,
    REST_ENABLED,
    REST_PORT,
    WEB_SUBMIT_ENABLE,
)
from headrace.rest.programs.program_runs import ProgramService

_LOG: Final = logging.getLogger(__name__)
_TELL_TIMEOUT_S: Final = 5.0
"""Time in which clients that wait for a savepoint ask again, in seconds."""
_WITHOUT_FILE: Final = (
    "clients read the token from a file that only the cluster's owner may read; set HEADRACE_HOME to another folder "
    "for it, or 'rest.enabled: false' to do without REST"
)


class RestServer(HttpServer):
    """The server of a cluster; one per cluster."""

    def __init__(
        self,
        control: ControlPlane,
        settings: Settings,
        clock: Clock,
        *,
        name: str,
        identity: TlsIdentity | None = None,
        is_session: bool = False,
    ) -> None:
        said = settings.get_option(WEB_SUBMIT_ENABLE)
        accepts_jobs = is_session if said is None else said
        view = ClusterView(control, settings, clock, accepts_jobs=accepts_jobs)
        operations = Operations(clock, settings.duration_ms(ASYNC_STORE_DURATION))

        def create(guard: RestGuard) -> AsgiApplication:
            from headrace.rest.app import create_app

            return create_app(view, guard, operations, programs)

        place = place_of_cluster(settings)
        super().__init__(
            place, create, settings, clock, name=name, identity=identity, is_session=is_session
        )
        self._fail_cluster: Final = control.fail if is_session else None
        self._operations: Final = operations
        programs = ProgramService(self.address, settings, clock)
        self._programs: Final = programs

    def _failed(self, error: Exception) -> None:
        if self._fail_cluster is None or self._is_closing:
            super()._failed(error)
        else:
            _LOG.error("the REST endpoint at %s has failed", self.address, exc_info=error)
            self._fail_cluster(f"REST at {self.address}", error)

    def close(self) -> None:
        """End the server, after requested results were fetched or a timeout, and end running programs."""
        self._programs.close()
        with contextlib.suppress(TimeoutError):
            self._thread.run(self._operations.all_fetched(), _TELL_TIMEOUT_S)
        super().close()


def start_rest_server(
    control: ControlPlane,
    settings: Settings,
    clock: Clock,
    *,
    name: str,
    identity: TlsIdentity | None = None,
    is_session: bool = False,
) -> RestServer | None:
    """Start the endpoint of a cluster, or return None if it is switched off or its files cannot be written.

    A session (`is_session`) receives its jobs over REST, unless `web.submit.enable` is off: then both cases are errors.
    ConfigurationError, or PortInUseError, if the options cannot be fulfilled.
    """
    if not settings.get_option(REST_ENABLED):
        if is_session:
            raise ConfigurationError(
                REST_ENABLED.key, False, "a session accepts its jobs over REST: leave it on"
            )
        return None
    try:
        server = RestServer(
            control,
            settings,
            clock,
            name=name,
            identity=identity,
            is_session=is_session,
        )
    except (ConnectionFileError, HomeFolderError, OSError) as error:
        if is_session:
            raise
        _LOG.warning("the dashboard and REST could not be started: %s; %s", error, _WITHOUT_FILE)
        return None
    server.start()
    _LOG.info("the dashboard is at %s", server.address)
    return server


def refuse_impossible_settings(settings: Settings) -> None:
    """Raise ConfigurationError if options of REST are invalid; before anything is started."""
    for option in (*OPTIONS, *FLAME_GRAPH_OPTIONS, *PROFILING_OPTIONS):
        settings.get_option(option)
    if settings.get_option(REST_ENABLED):
        place = place_of_cluster(settings)
        parse_ports(place.port_option, place.ports)
        guard_of(settings, "", place.address, 0, is_tls=False)


def place_of_cluster(settings: Settings) -> ListeningPlace:
    """Return the address and ports at which the server of a cluster listens."""
    address = settings.get_option(REST_BIND_ADDRESS)
    bind_ports = settings.get_option(REST_BIND_PORT)
    return ListeningPlace(
        address,
        REST_BIND_ADDRESS.key,
        settings.get_option(REST_ADDRESS) or address,
        bind_ports or settings.get_option(REST_PORT),
        REST_PORT.key if bind_ports is None else REST_BIND_PORT.key,
    )
