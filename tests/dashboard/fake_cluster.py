"""A cluster that answers the dashboard's routes with golden answers, and serves the built dashboard beside them.

`python -m tests.dashboard.fake_cluster` serves it on port 8099 to look at.
"""

import functools
import json
import mimetypes
import re
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from tests.dashboard import golden_answers as answers
from tests.dashboard import golden_checkpoints as checkpoints
from tests.dashboard import golden_processes as processes
from tests.dashboard import golden_state as state
from tests.dashboard.golden_answers import Answer, NotFoundError
from tests.dashboard.golden_event_time import job_watermarks

ROOT: Final = Path(__file__).resolve().parents[2]
DASHBOARD: Final = ROOT / "headrace" / "rest" / "dashboard"
REQUESTS_MAX: Final = 100_000
_JOB: Final = "/jobs/{jobid}"
_VERTEX: Final = _JOB + "/vertices/{vertexid}"
_TASK_MANAGER: Final = "/taskmanagers/{taskmanagerid}"

ANSWERS: Final[dict[str, Answer]] = {
    "GET /config": answers.configuration,
    "GET /overview": answers.overview,
    "GET /jobs/overview": answers.jobs,
    f"GET {_JOB}": answers.job,
    f"GET {_JOB}/config": answers.job_config,
    f"GET {_JOB}/exceptions": answers.job_exceptions,
    f"GET {_JOB}/accumulators": answers.job_accumulators,
    f"GET {_JOB}/metrics": answers.job_metrics,
    f"GET {_JOB}/metrics-history": answers.metrics_history,
    f"GET {_JOB}/watermarks": job_watermarks,
    f"GET {_JOB}/checkpoints": checkpoints.checkpoints,
    f"GET {_JOB}/checkpoints/config": checkpoints.checkpoint_config,
    f"GET {_JOB}/checkpoints/details/{{checkpointid}}": checkpoints.checkpoint_details,
    f"GET {_JOB}/checkpoints/details/{{checkpointid}}/subtasks/{{vertexid}}": checkpoints.checkpoint_subtasks,
    f"GET {_VERTEX}": answers.vertex,
    f"GET {_VERTEX}/subtasks/{{subtaskindex}}/attempts/{{attempt}}": answers.numbered_attempt,
    f"GET {_VERTEX}/subtasktimes": answers.subtask_times,
    f"GET {_VERTEX}/backpressure": answers.back_pressure,
    f"GET {_VERTEX}/watermarks": answers.watermarks,
    f"GET {_VERTEX}/metrics": answers.vertex_metrics,
    f"GET {_VERTEX}/subtasks/metrics": answers.vertex_subtask_metrics,
    f"GET {_VERTEX}/flamegraph": answers.flame_graph,
    f"GET {_JOB}/state": state.job_state,
    f"GET {_JOB}/state/operators/{{operatorid}}": state.operator_state,
    f"GET {_JOB}/state/operators/{{operatorid}}/rows": state.state_rows,
    f"POST {_JOB}/state/edits": state.edit_state,
    f"GET {_JOB}/state/edits/{{triggerid}}": state.edit_status,
    "GET /taskmanagers": processes.task_managers,
    f"GET {_TASK_MANAGER}": processes.task_manager,
    f"GET {_TASK_MANAGER}/metrics": processes.task_manager_metrics,
    f"GET {_TASK_MANAGER}/logs": processes.task_manager_logs,
    f"GET {_TASK_MANAGER}/logs/{{filename}}": processes.task_manager_log,
    f"GET {_TASK_MANAGER}/stdout": processes.task_manager_stdout,
    f"GET {_TASK_MANAGER}/thread-dump": processes.task_manager_thread_dump,
    f"GET {_TASK_MANAGER}/profiler": processes.profiles,
    f"POST {_TASK_MANAGER}/profiler": processes.take_profile,
    "GET /jobmanager/profiler": processes.profiles,
    "POST /jobmanager/profiler": processes.take_profile,
    "GET /jobmanager/config": processes.job_manager_config,
    "GET /jobmanager/environment": processes.job_manager_environment,
    "GET /jobmanager/metrics": processes.job_manager_metrics,
    "GET /jobmanager/logs": processes.job_manager_logs,
    "GET /jobmanager/logs/{filename}": processes.job_manager_log,
    "GET /jobmanager/stdout": processes.job_manager_stdout,
    "GET /jobmanager/thread-dump": processes.job_manager_thread_dump,
    # What an operator does to a job: each is done at once.
    f"PATCH {_JOB}": lambda parts, query: {},
    f"POST {_JOB}/stop": lambda parts, query: {"request-id": "f" * 32},
    f"POST {_JOB}/savepoints": lambda parts, query: {"request-id": "f" * 32},
    f"GET {_JOB}/savepoints/{{triggerid}}": lambda parts, query: {
        "status": {"id": "COMPLETED"},
        "operation": {"location": "file:/data/savepoints/savepoint-aaaaaa-0123456789ab"},
    },
    f"POST {_JOB}/checkpoints": lambda parts, query: {"request-id": "e" * 32},
    f"GET {_JOB}/checkpoints/{{triggerid}}": lambda parts, query: {
        "status": {"id": "COMPLETED"},
        "operation": {"checkpointId": 76},
    },
}
_BY_METHOD: Final = [
    (
        route.partition(" ")[0],
        re.compile(re.sub(r"\{\w+\}", "([^/]+)", route.partition(" ")[2])),
        answer,
    )
    for route, answer in ANSWERS.items()
]
_COOKIE: Final = "headrace_session=yes"


class FakeCluster(AbstractContextManager["FakeCluster"]):
    """The server, on a free port of loopback. With `token`, everything but the page wants it first."""

    def __init__(
        self, token: str | None = None, *, is_history: bool = False, port: int = 0
    ) -> None:
        self.token: Final = token
        self.is_history: Final = is_history
        self.requests: list[str] = []
        self.bodies: list[str] = []
        self.broken: str | None = None
        """Regular expression of the paths that fail with 500 for now."""
        self.held: threading.Event | None = None
        """Answers of REST wait for this event, where there is one."""
        handler = functools.partial(_Handler, self)
        self._server: Final = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._server.daemon_threads = True
        self._thread: Final = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        """Return the URL at which it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "FakeCluster":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.held is not None:
            self.held.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def count(self, pattern: str) -> int:
        """Return how many requests so far match a regular expression."""
        return sum(re.search(pattern, request) is not None for request in list(self.requests))

    def answer(self, method: str, path: str, query: dict[str, str]) -> Any:
        """Return the answer of a route, None where there is no such route."""
        for of, pattern, answer in _BY_METHOD:
            match = pattern.fullmatch(path)
            if of == method and match is not None:
                found = answer([unquote(part) for part in match.groups()], query)
                if self.is_history and path == "/config":
                    found["features"] |= {"web-history": True, "web-cancel": False}
                return found
        return None


class _Handler(BaseHTTPRequestHandler):
    """Answers one request at a time; nothing is written to the log."""

    protocol_version = "HTTP/1.1"

    def __init__(self, cluster: FakeCluster, *more: Any) -> None:
        self._cluster = cluster
        super().__init__(*more)

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _serve(self, method: str) -> None:
        cluster = self._cluster
        length = int(self.headers.get("content-length", "0"))
        body = self.rfile.read(length).decode() if length else ""
        if len(cluster.requests) < REQUESTS_MAX:
            cluster.requests.append(f"{method} {self.path}")
            cluster.bodies.append(body)
        address = urlsplit(self.path)
        if method == "GET" and self._static(address.path):
            return
        if cluster.held is not None:
            cluster.held.wait(30)
        if cluster.broken is not None and re.search(cluster.broken, address.path):
            self._json(
                500,
                {"errors": ["Internal server error.", "BrokenOnPurposeError: no answer\n  at x"]},
            )
        elif address.path == "/session":
            self._session(method, body)
        elif cluster.token is not None and _COOKIE not in self.headers.get("cookie", ""):
            self._json(401, {"errors": ["The token of the cluster is missing."]})
        else:
            self._route(method, address.path, {k: v[0] for k, v in parse_qs(address.query).items()})

    def _route(self, method: str, path: str, query: dict[str, str]) -> None:
        try:
            found = self._cluster.answer(method, path, query)
        except NotFoundError as error:
            self._json(404, {"errors": [str(error)]})
            return
        if found is None:
            self._json(404, {"errors": [f"Not found: {path}"]})
        elif isinstance(found, str):
            self._send(200, found.encode(), "text/plain; charset=UTF-8")
        else:
            self._json(200 if method == "GET" else 202, found)

    def _session(self, method: str, body: str) -> None:
        if method == "DELETE":
            self._json(
                200, {}, ("set-cookie", "headrace_session=; Max-Age=0; HttpOnly; SameSite=Strict")
            )
        elif json.loads(body or "{}").get("token") == self._cluster.token:
            self._json(200, {}, ("set-cookie", f"{_COOKIE}; HttpOnly; SameSite=Strict; Path=/"))
        else:
            self._json(401, {"errors": ["This is not the token of this cluster."]})

    def _static(self, path: str) -> bool:
        file = DASHBOARD / (unquote(path).lstrip("/") or "index.html")
        if not file.resolve().is_relative_to(DASHBOARD) or not file.is_file():
            return False
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        # As strict as a server may be: no script or style but those of the page's own files.
        policy = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
        self._send(200, file.read_bytes(), kind, ("content-security-policy", policy))
        return True

    def _json(self, status: int, answer: Any, *headers: tuple[str, str]) -> None:
        self._send(status, json.dumps(answer).encode(), "application/json; charset=UTF-8", *headers)

    def _send(self, status: int, content: bytes, kind: str, *headers: tuple[str, str]) -> None:
        try:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # The page was left while it asked.


def main(arguments: Sequence[str]) -> None:
    """Serve until interrupted."""
    port = int(arguments[0]) if arguments else 8099
    with FakeCluster(port=port) as cluster:
        print(f"{cluster.address}/")
        threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1:])
