"""PrometheusReporter: serves a page with all metrics for Prometheus, on a port of its own.

It listens on loopback unless its `bind-address` says otherwise; there is no authentication. On loopback it answers only
requests that name a loopback host, so that no page in a browser can read it under another name. The page is made on
request, at most once a second, by one of the server's few threads. Source: Flink PrometheusReporter.
"""

import contextlib
import errno
import logging
import re
import socket
import socketserver
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headrace.core.clock import Clock, SystemClock
from headrace.core.config import parse_ports
from headrace.core.errors import PortInUseError
from headrace.core.security.tls import is_loopback
from headrace.core.threads import start_thread
from headrace.metrics.groups import MetricSample
from headrace.metrics.instruments import QUANTILES
from headrace.metrics.metric_name import MetricKind
from headrace.metrics.readings import ENDED_GROUPS_MAX, GroupReading, MetricReport
from headrace.metrics.reporters.options import BIND_ADDRESS, FILTER_LABEL_VALUES, PORT
from headrace.metrics.reporters.reporter import MetricReporter, ReporterConfig

_PREFIX: Final = "flink"
_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9:_]")
_NOT_IN_A_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")
_SUFFIXES: Final = frozenset({"count", "sum"})
_Key = tuple[str, tuple[tuple[str, str], ...]]
_LOG = logging.getLogger(__name__)
_REQUESTS_MAX: Final = 8
_REQUEST_TIMEOUT_S: Final = 10.0
_FRESH_MS: Final = 1_000
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
Environ = dict[str, Any]
StartResponse = Callable[..., Any]


def family_name(reading: GroupReading, sample: MetricSample) -> str:
    """Return the name of a metric family, which is the same in all groups of a kind."""
    parts = (_PREFIX, *reading.kind.value.split("."), *sample.keys, sample.name)
    return _NOT_IN_A_NAME.sub("_", "_".join(parts))


class MetricFamilies:
    """Turns readings into families, under the names of Flink's reporter.

        flink_taskmanager_job_task_numRecordsIn{job_name="orders",task_name="count",subtask_index="0"} 17
        flink_taskmanager_job_task_mailboxLatencyMs{task_name="count",subtask_index="0",quantile="0.99"} 4

    A histogram is a summary of its count and quantiles; its extremes, mean and deviation, which summaries lack, are
    gauges. Everything else is a gauge, as in Flink: a counter would need a name `…_total`. `filters_values`: keep only
    letters, digits, `:` and `_` in values of labels. Source: Flink AbstractPrometheusReporter.
    """

    def __init__(self, *, filters_values: bool) -> None:
        self._filters_values: Final = filters_values

    def of(self, readings: Iterable[GroupReading]) -> Iterator[Metric]:
        """Yield each family once.

        Of two samples with the same labels, which Prometheus would refuse, the later one counts.
        """
        families: dict[str, Metric] = {}
        values: dict[str, dict[_Key, float]] = {}
        for reading in readings:
            labels = self._labels(reading.variables)
            for sample in reading.samples:
                own = labels | self._labels(sample.variables) if sample.variables else labels
                full_name = family_name(reading, sample)
                name, suffix, quantile = _part_of_summary(full_name, sample.kind)
                if name not in families:
                    kind = SummaryMetricFamily if suffix or quantile else GaugeMetricFamily
                    families[name] = kind(name, f"{name} of Headrace")
                if quantile:
                    own = own | {"quantile": quantile}
                key = (name + suffix, tuple(sorted(own.items())))
                values.setdefault(name, {})[key] = sample.value
        for name, family in families.items():
            for (full_name, pairs), value in values[name].items():
                family.add_sample(full_name, dict(pairs), value)
            yield family

    def _labels(self, variables: Mapping[str, str]) -> dict[str, str]:
        return {_label_name(name): self._label_value(value) for name, value in variables.items()}

    def _label_value(self, value: str) -> str:
        return _NOT_IN_A_NAME.sub("_", value) if self._filters_values else value


def _label_name(name: str) -> str:
    cleaned = _NOT_IN_A_LABEL.sub("_", name)
    return f"_{cleaned}" if cleaned[:1].isdigit() else cleaned


def _part_of_summary(full_name: str, kind: MetricKind) -> tuple[str, str, str]:
    """Return family, suffix and quantile of a sample; suffix and quantile are empty for a gauge."""
    if kind is MetricKind.HISTOGRAM:
        name, _, part = full_name.rpartition("_")
        if part in QUANTILES:
            return name, "", str(QUANTILES[part])
        if part in _SUFFIXES:
            return name, f"_{part}", ""
    return full_name, "", ""


class ReportCollector(Collector):
    """The page's content: all current groups, and once those that ended since the last page."""

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
        """Make pages of the result of `read`."""
        self._read = read

    def add_ended(self, readings: Iterable[GroupReading]) -> None:
        """Show the last values of groups that ended on the next page."""
        self._ended.extend(readings)

    def describe(self) -> Iterable[Metric]:
        """Return nothing, because the metrics are only known when they are read."""
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
        """Log nothing: a line per request is not useful."""


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """Serves a few concurrent requests, each on a thread; further connections are closed.

    A connection that has not received its page in time is closed too, even if it slowly sends its request: otherwise a
    few such connections would block all others.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: str, port: int, clock: Clock) -> None:
        self._clock: Final = clock
        # Connections by the time at which they came; their threads take them out, one step each.
        self._came_ms: Final[dict[socket.socket, float]] = {}
        super().__init__((address, port), _Handler)

    def server_bind(self) -> None:
        """Bind without resolving the host's name, which may take long."""
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
        """Ignore a client that disconnected."""
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
