"""Servers to which reporters send: Debian's Prometheus push gateway, and a receiver of OTLP over HTTP."""

import gzip
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from headrace.core.threads import start_thread
from testkit.ports import free_ports
from testkit.waiting import wait_until

PROTOBUF: Final = "application/x-protobuf"
INSTANCE: Final = "service.instance.id"
_SIGNALS: Final[dict[str, tuple[Any, Any]]] = {
    "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
}


class PushGateway:
    """A push gateway that runs, asked as Prometheus asks it."""

    def __init__(self, url: str) -> None:
        self.url: Final = url

    def page(self) -> str:
        """Return all that was pushed and not deleted."""
        with urlopen(f"{self.url}/metrics", timeout=30) as answer:
            return answer.read().decode()

    def is_ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/-/ready", timeout=30) as answer:
                return answer.status == HTTPStatus.OK
        except URLError:
            return False


@contextmanager
def push_gateway(folder: Path) -> Generator[PushGateway]:
    """Run Debian's push gateway on a free port of loopback; tests fail without it, with what to do."""
    program = shutil.which("prometheus-pushgateway")
    if program is None:
        pytest.fail("there is no push gateway: apt-get install prometheus-pushgateway")
    (port,) = free_ports()
    address = f"127.0.0.1:{port}"
    with (folder / "push_gateway.txt").open("wb") as log:
        # Debian's keeps groups in a file otherwise, which others that run on this machine would read.
        options = [f"--web.listen-address={address}", "--persistence.file="]
        process = subprocess.Popen([program, *options], stdout=log, stderr=log)
    try:
        gateway = PushGateway(f"http://{address}")
        wait_until(
            gateway.is_ready, what=f"the push gateway at {address}, which logs to {log.name}"
        )
        assert process.poll() is None, Path(log.name).read_text()
        yield gateway
    finally:
        process.terminate()
        process.wait(30)


class OtlpReceiver(ThreadingHTTPServer):
    """Takes OTLP over HTTP as a collector does: protobuf messages, plain or gzip, of metrics and of traces."""

    def __init__(self) -> None:
        self.metrics: Final[list[ExportMetricsServiceRequest]] = []
        self.traces: Final[list[ExportTraceServiceRequest]] = []
        super().__init__(("127.0.0.1", 0), _OtlpHandler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def metric_names(self) -> dict[str, set[str]]:
        """Return the names of all metrics so far, by the instance that sent them."""
        found: dict[str, set[str]] = {}
        for request in list(self.metrics):
            for each in request.resource_metrics:
                names = found.setdefault(_instance_of(each.resource), set())
                names.update(one.name for scope in each.scope_metrics for one in scope.metrics)
        return found

    def span_names(self) -> dict[str, set[str]]:
        """Return the names of all spans so far, by the instance that sent them."""
        found: dict[str, set[str]] = {}
        for request in list(self.traces):
            for each in request.resource_spans:
                names = found.setdefault(_instance_of(each.resource), set())
                names.update(one.name for scope in each.scope_spans for one in scope.spans)
        return found


def _instance_of(resource: Resource) -> str:
    (found,) = [one.value.string_value for one in resource.attributes if one.key == INSTANCE]
    return found


class _OtlpHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path not in _SIGNALS:
            return self._answer(HTTPStatus.NOT_FOUND)
        if self.headers["Content-Type"] != PROTOBUF:
            return self._answer(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        request, response = _SIGNALS[self.path]
        try:
            is_compressed = self.headers["Content-Encoding"] == "gzip"
            message = request.FromString(gzip.decompress(body) if is_compressed else body)
        except (DecodeError, OSError):
            return self._answer(HTTPStatus.BAD_REQUEST)
        receiver = self.server
        assert isinstance(receiver, OtlpReceiver)
        (receiver.metrics if self.path == "/v1/metrics" else receiver.traces).append(message)
        return self._answer(HTTPStatus.OK, response().SerializeToString())

    def _answer(self, status: HTTPStatus, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Type", PROTOBUF)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def otlp_receiver() -> Generator[OtlpReceiver]:
    """Receive OTLP on a free port of loopback."""
    with OtlpReceiver() as receiver:
        start_thread("OTLP receiver", receiver.serve_forever)
        try:
            yield receiver
        finally:
            receiver.shutdown()
