"""KubernetesApi: a stand-in for the API server of Kubernetes, with objects, versions, watches and failures on demand.

It stores objects under the path of their collection. A write of an object with a resourceVersion other than the
stored one is a conflict (409), as on a real server. It lists and watches collections by labels and by fields, merges
patches, applies objects on the server's side, deletes owned objects with their owner, and speaks HTTPS to clients
with a token if configured; it has no schemas and permissions. Watches are HTTP streams: an upgrade to a
WebSocket is refused with 503, as by servers without WebSockets.
"""

import contextlib
import copy
import datetime
import json
import re
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from headrace.core.clock import SystemClock
from headrace.core.threads import start_thread
from testkit.server_identity import server_identity

_BODY_MAX: Final = 3 << 20
_APPLY: Final = "application/apply-patch+yaml"
_NAMES: Final = ("kubernetes.default.svc",)
"""Names under which pods reach the server."""
_WATCH_POLL_S: Final = 0.5
_NAMESPACED: Final = re.compile(
    r"/(?:api/[^/]+|apis/[^/]+/[^/]+)/namespaces/(?P<namespace>[^/]+)/(?P<plural>[^/]+)"
)

_VERBS: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_VERBS_OF_ALL: Final = {
    "GET": "list",
    "WATCH": "watch",
    "POST": "create",
    "DELETE": "deletecollection",
}


@dataclass(frozen=True)
class Event:
    """One change of a stored object: `kind` is ADDED, MODIFIED or DELETED, `object` its content at that time."""

    version: int
    kind: str
    path: str
    object: dict[str, Any]


class KubernetesApi:
    """The server. Requested failures happen to the next requests, in turn.

    With a `token` it speaks HTTPS, and refuses clients without it. Objects of the collections in `kept` are only marked
    when they are deleted, until `remove` is called, as pods end first.
    """

    def __init__(self, *, token: str = "", kept: tuple[str, ...] = ()) -> None:
        self._token: Final = token
        self._kept: Final = kept
        self.certificate: bytes | None = None
        """Certificate for clients, in PEM, if the server speaks HTTPS."""
        self.requests: Final[set[tuple[str, str]]] = set()
        """Verbs and collections of requests, as a Role permits them: ("deletecollection", "pods")."""
        self._events: Final[list[Event]] = []
        self._is_closed = False
        self.objects: Final[dict[str, dict[str, Any]]] = {}
        """Objects by path, such as /api/v1/namespaces/default/configmaps/some-name."""
        self._version = 0
        self._lock: Final = threading.Condition()
        self._failures: Final[list[int]] = []
        self._lost_answers = 0
        self._conflicts = 0
        self.may_answer: Final = threading.Event()
        """Event; while it is cleared, requests wait."""
        self.may_answer.set()
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._serve()

            def do_POST(self) -> None:
                self._serve()

            def do_PUT(self) -> None:
                self._serve()

            def do_PATCH(self) -> None:
                self._serve()

            def do_DELETE(self) -> None:
                self._serve()

            def log_message(self, format: str, *args: Any) -> None:
                """Write no log."""

            def _serve(self) -> None:
                length = min(int(self.headers.get("Content-Length") or 0), _BODY_MAX)
                body = self.rfile.read(length)
                api.may_answer.wait(60)
                parts = urlsplit(self.path)
                query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
                if token and self.headers.get("Authorization") != f"Bearer {token}":
                    self._answer(401, _status_of(401))
                elif self.headers.get("Upgrade"):
                    self._answer(503, _status_of(503))
                elif query.get("watch") == "true":
                    api.note("WATCH", parts.path)
                    self._stream(api.watch(parts.path, query))
                else:
                    is_apply = self.headers.get("Content-Type", "").startswith(_APPLY)
                    self._answer(
                        *api.answer(self.command, parts.path, body, query, is_apply=is_apply)
                    )

            def _answer(self, status: int, answer: dict[str, Any]) -> None:
                if status == 0:
                    self.close_connection = True
                    return
                content = json.dumps(answer).encode()
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def _stream(self, events: Iterator[dict[str, Any] | None]) -> None:
                self.close_connection = True
                with contextlib.suppress(OSError):
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    for event in events:
                        if event is not None:
                            line = json.dumps(event).encode() + b"\n"
                            self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
                    self.wfile.write(b"0\r\n\r\n")

        self._server: Final = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if token:
            self.certificate, context = server_identity(*_NAMES)
            # The TLS handshake of each connection runs in its own thread.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread: Final = start_thread("kubernetes-api", self._server.serve_forever)

    @property
    def address(self) -> str:
        """Return the address, such as http://127.0.0.1:8001."""
        scheme = "https" if self._token else "http"
        return f"{scheme}://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """Return the port at which the server listens."""
        return int(self._server.server_address[1])

    def kube_config(self) -> str:
        """Return the content of a kubeconfig file for this server."""
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "stand-in", "cluster": {"server": self.address}}],
                "users": [{"name": "somebody", "user": {}}],
                "contexts": [
                    {"name": "here", "context": {"cluster": "stand-in", "user": "somebody"}}
                ],
                "current-context": "here",
            }
        )

    def fail_next(self, *statuses: int) -> None:
        """Answer the next requests with these statuses, without executing them."""
        self._failures.extend(statuses)

    def lose_answers(self, count: int = 1) -> None:
        """Execute the next writes, and break the connection instead of answering."""
        self._lost_answers += count

    def conflict_next(self, count: int = 1) -> None:
        """Refuse the next writes, as if another client had been faster."""
        self._conflicts += count

    def close(self) -> None:
        """End the server. Idempotent."""
        self.may_answer.set()
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(
        self,
        method: str,
        path: str,
        body: bytes,
        query: dict[str, str] | None = None,
        *,
        is_apply: bool = False,
    ) -> tuple[int, dict[str, Any]]:
        """Return status and body; status 0: the answer is lost. `is_apply`: a patch that may create its object."""
        query = query or {}
        with self._lock:
            if self._failures:
                status = self._failures.pop(0)
                return status, _status_of(status)
            self.note(method, path)
            if _NAMESPACED.fullmatch(path) and method != "POST":
                return self._answer_collection(method, path, query)
            if method in ("GET", "DELETE"):
                found = self.objects.get(path)
                if found is None:
                    return 404, _status_of(404)
                if method == "DELETE":
                    self._delete(path)
                return 200, found
            return self._write(method, path, json.loads(body), is_apply=is_apply)

    def note(self, method: str, path: str) -> None:
        """Record a client's request."""
        namespaced = _NAMESPACED.match(path)
        if namespaced is not None:
            verbs = _VERBS_OF_ALL if namespaced.end() == len(path) else _VERBS
            self.requests.add((verbs[method], namespaced["plural"]))

    def watch(self, path: str, query: dict[str, str]) -> Iterator[dict[str, Any] | None]:
        """Yield events of a collection as they come, beginning with its content; None now and then, until the end."""
        with self._lock:
            since = int(query.get("resourceVersion") or 0)
            found = [] if since else self._select(path, query)
            since = since or self._version
        yield from ({"type": "ADDED", "object": one} for one in found)
        known = {one["metadata"]["name"] for one in found}
        for event in self.events(since):
            if event is None:
                yield None
                continue
            if event.path.rpartition("/")[0] != path:
                continue
            name, kind = event.object["metadata"]["name"], event.kind
            if kind != "DELETED" and not _is_selected(event.object, query):
                kind = "DELETED"  # for a watch with a selector it is gone
            if kind == "DELETED" and name not in known and not _is_selected(event.object, query):
                continue
            known = known - {name} if kind == "DELETED" else known | {name}
            yield {"type": kind, "object": event.object}

    def events(self, since: int = 0) -> Iterator[Event | None]:
        """Yield every change of an object after version `since`, None now and then, until the server ends."""
        index = 0
        while True:
            with self._lock:
                if index == len(self._events):
                    if self._is_closed:
                        return
                    self._lock.wait(_WATCH_POLL_S)
                new = self._events[index:]
            index += len(new)
            yield from (one for one in new if one.version > since)
            if not new:
                yield None

    def change(self, path: str, action: Callable[[dict[str, Any]], None]) -> None:
        """Change a stored object, as controllers do; no effect if it is gone."""
        with self._lock:
            stored = self.objects.get(path)
            if stored is not None:
                action(stored)
                self._store("MODIFIED", path, stored)

    def remove(self, path: str) -> None:
        """Remove an object of a kept collection for good, and delete those whose only owner it is."""
        with self._lock:
            stored = self.objects.pop(path, None)
            if stored is None:
                return
            self._store("DELETED", path, stored)
            owner = stored["metadata"].get("uid")
            for one, other in list(self.objects.items()):
                owners = other["metadata"].get("ownerReferences") or []
                if owners and all(each["uid"] == owner for each in owners):
                    self._delete(one)

    def collection(self, plural: str) -> list[dict[str, Any]]:
        """Return all present objects of one kind, such as pods."""
        with self._lock:
            return [
                copy.deepcopy(one)
                for path, one in self.objects.items()
                if path.split("/")[-2] == plural
            ]

    def _answer_collection(
        self, method: str, path: str, query: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:
        if method not in ("GET", "DELETE"):
            return 405, _status_of(405)
        found = self._select(path, query)
        if method == "DELETE":
            for one in found:
                self._delete(f"{path}/{one['metadata']['name']}")
        return 200, {
            "kind": "List",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": str(self._version)},
            "items": found,
        }

    def _select(self, path: str, query: dict[str, str]) -> list[dict[str, Any]]:
        return [
            copy.deepcopy(one)
            for place, one in self.objects.items()
            if place.rpartition("/")[0] == path and _is_selected(one, query)
        ]

    def _delete(self, path: str) -> None:
        namespaced = _NAMESPACED.match(path)
        if namespaced is not None and namespaced["plural"] in self._kept:
            stored = self.objects[path]
            if "deletionTimestamp" not in stored["metadata"]:
                stored["metadata"]["deletionTimestamp"] = timestamp()
                self._store("MODIFIED", path, stored)
        else:
            self.remove(path)

    def _store(self, kind: str, path: str, given: dict[str, Any]) -> None:
        self._version += 1
        given["metadata"]["resourceVersion"] = str(self._version)
        self._events.append(Event(self._version, kind, path, copy.deepcopy(given)))
        self._lock.notify_all()

    def _write(
        self, method: str, path: str, given: dict[str, Any], *, is_apply: bool
    ) -> tuple[int, dict[str, Any]]:
        if self._conflicts:
            self._conflicts -= 1
            return 409, _status_of(409)
        if method == "POST":
            path = f"{path}/{given['metadata']['name']}"
        stored = self.objects.get(path)
        is_creation = method == "POST" or (is_apply and stored is None)
        if is_creation and stored is not None:
            return 409, _status_of(409)
        if not is_creation:
            if stored is None:
                return 404, _status_of(404)
            version = given["metadata"].get("resourceVersion")
            if version is not None and version != stored["metadata"]["resourceVersion"]:
                return 409, _status_of(409)
        if is_creation:
            given["metadata"].setdefault("uid", f"uid-{self._version + 1}")
            given["metadata"].setdefault("creationTimestamp", timestamp())
            namespaced = _NAMESPACED.match(path)
            if namespaced is not None:
                given["metadata"].setdefault("namespace", namespaced["namespace"])
                if namespaced["plural"] == "pods":
                    given.setdefault("status", {"phase": "Pending"})
        elif method == "PATCH":
            given = _merged(stored, given)
        self.objects[path] = given
        self._store("ADDED" if is_creation else "MODIFIED", path, given)
        if self._lost_answers:
            self._lost_answers -= 1
            return 0, {}
        return 201 if is_creation else 200, copy.deepcopy(given)


def timestamp() -> str:
    """Return the time of day as Kubernetes writes it."""
    now = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, datetime.UTC)
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _merged(old: Any, new: Any) -> Any:
    """Apply a merge patch: maps are merged, null removes, anything else replaces the value."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    result: dict[str, Any] = dict(old)
    for key, value in new.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _is_selected(one: dict[str, Any], query: dict[str, str]) -> bool:
    labels = one["metadata"].get("labels") or {}
    wanted = re.findall(
        r"([^,=!\s()]+)\s*(!=|==|=|\snotin\s|\sin\s)\s*(\([^)]*\)|[^,]*)",
        query.get("labelSelector", ""),
    )
    for key, operator, text in wanted:
        values = {value.strip() for value in text.strip("()").split(",")}
        is_negated = operator.strip() in ("!=", "notin")
        if (labels.get(key) in values) == is_negated:
            return False
    for condition in filter(None, query.get("fieldSelector", "").split(",")):
        key, _, value = condition.partition("=")
        found: Any = one
        for part in key.split("."):
            found = found.get(part, {})
        if found != value.removeprefix("="):
            return False
    return True


@contextlib.contextmanager
def kubernetes_api(*, token: str = "", kept: tuple[str, ...] = ()) -> Generator[KubernetesApi]:
    """Yield a server that ends with the block. The arguments are KubernetesApi's."""
    api = KubernetesApi(token=token, kept=kept)
    try:
        yield api
    finally:
        api.close()


def _status_of(status: int) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
