"""PrometheusReporter: a page of all metrics that Prometheus fetches, on a port of its own.

It listens on loopback unless its `bind-address` says otherwise; there is no authentication. On loopback it answers only
requests that name a loopback host, so that no page in a browser can read it under another name. The page is made when
it is asked for, at most once a second, by one of a few threads that its server has. Source: Flink PrometheusReporter.
"""

import contextlib
import errno
import logging
import socket
import socketserver
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headrace.core.clock import Clock, SystemClock
from headrace.core.config import parse_ports
from headrace.core.errors import PortInUseError
from headrace.core.security.tls import is_loopback
from headrace.core.threads import start_thread
from headrace.metrics.readings import ENDED_GROUPS_MAX, GroupReading, MetricReport
from headrace.metrics.reporters.options import BIND_ADDRESS, FILTER_LABEL_VALUES, PORT
from headrace.metrics.reporters.prometheus_families import MetricFamilies
from headrace.metrics.reporters.reporter import MetricReporter, ReporterConfig

_LOG = logging.getLogger(__name__)

_REQUESTS_MAX: Final = 8
_REQUEST_TIMEOUT_S: Final = 10.0
_FRESH_MS: Final = 1_000
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})

Environ = dict[str, Any]
StartResponse = Callable[..., Any]


class ReportCollector(Collector):
    """The page's content: all groups as they are, and once each those that ended since the last page."""

    def __init__(self, families: MetricFamilies, clock: Clock) -> None:
        self._families: Final = families
        self._clock: Final = clock
        self._read: Callable[[], MetricReport] = lambda: MetricReport(0, ())
        self._ended: Final = deque[GroupReading](maxlen=ENDED_GROUPS_MAX)
        # Guards the page: requests that come at once get the same one.
        self._lock: Final = threading.Lock()
        self._page: list[Metric] = []
        self._made_ms: float | None = None

    def open(self, read: Callable[[], MetricReport]) -> None:
        """Make pages of what `read` reads."""
        self._read = read

    def add_ended(self, readings: Iterable[GroupReading]) -> None:
        """Show the last values of groups that ended on the next page."""
        self._ended.extend(readings)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: what there is shows only when it is read."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the families of the page."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if self._made_ms is None or now_ms - self._made_ms >= _FRESH_MS:
                ended: list[GroupReading] = []
                while self._ended:
                    ended.append(self._ended.popleft())
                self._page = list(self._families.of((*ended, *self._read().groups)))
                self._made_ms = now_ms
            page = self._page
        yield from page


class PrometheusReporter(MetricReporter):
    """Serves the page of metrics over HTTP. `port`: the port in use, None before `open`."""

    OPTIONS = (PORT, BIND_ADDRESS, FILTER_LABEL_VALUES)
    is_pulled = True

    def __init__(self, config: ReporterConfig, clock: Clock | None = None) -> None:
        super().__init__(config)
        self._address: Final = config.get_option(BIND_ADDRESS)
        self._ports_text: Final = config.get_option(PORT)
        self._ports: Final = tuple(parse_ports(config.key_of(PORT), self._ports_text))
        families = MetricFamilies(filters_values=config.get_option(FILTER_LABEL_VALUES))
        self._clock: Final = clock or SystemClock()
        self._collector: Final = ReportCollector(families, self._clock)
        self._server: _Server | None = None
        self.port: int | None = None

    def open(self, read: Callable[[], MetricReport]) -> None:
        self._collector.open(read)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self._collector)
        application = make_wsgi_app(registry)
        if is_loopback(self._address):
            application = _only_loopback_hosts(application)
        server = self._bind()
        server.set_app(application)
        self.port = server.server_port
        self._server = server
        start_thread(f"headrace-prometheus-{self.port}", server.serve_forever)
        _LOG.info("metrics for Prometheus: http://%s:%d/metrics", self._address, self.port)

    def report(self, report: MetricReport) -> None:
        self._collector.add_ended(report.ended)

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _bind(self) -> "_Server":
        for port in self._ports:
            try:
                return _Server(self._address, port, self._clock)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise PortInUseError(
            self._address, self._ports[0], self.config.key_of(PORT), self._ports_text
        )


class _Handler(WSGIRequestHandler):
    timeout = _REQUEST_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Keep still: a line per request says nothing."""


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """Serves a few requests at once, each on a thread; the connections of more are closed.

    A connection that has not got its page in time is closed too, however slowly it goes on to send its request: else a
    few of them would keep everybody from the page.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: str, port: int, clock: Clock) -> None:
        self._clock: Final = clock
        # Connections by the time at which they came; their threads take them out, one step each.
        self._came_ms: Final[dict[socket.socket, float]] = {}
        super().__init__((address, port), _Handler)

    def server_bind(self) -> None:
        """Bind without asking for the host's name, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._came_ms) >= _REQUESTS_MAX:
            self.shutdown_request(request)
            return
        self._came_ms[request] = self._clock.monotonic_ms()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._came_ms.pop(request, None)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._came_ms.pop(request, None)

    def service_actions(self) -> None:
        """Close connections that take too long; called twice a second."""
        oldest_ms = self._clock.monotonic_ms() - 1000 * _REQUEST_TIMEOUT_S
        for request, came_ms in list(self._came_ms.items()):
            if came_ms <= oldest_ms:
                with contextlib.suppress(OSError):
                    # Its thread, which waits for it, sees the end.
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over a client that went away."""
        _LOG.debug("a request for metrics failed", exc_info=True)


def _only_loopback_hosts(
    application: Callable[[Environ, StartResponse], Iterable[bytes]],
) -> Callable[[Environ, StartResponse], Iterable[bytes]]:
    def checked(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        host = str(environ.get("HTTP_HOST", "")).rsplit(":", 1)[0].strip("[]")
        if host not in _LOOPBACK_NAMES:
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"this page is for this host only\n"]
        return application(environ, start_response)

    return checked
