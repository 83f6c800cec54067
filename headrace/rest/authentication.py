"""RestGuard: decides whether a request may be answered, by its host, its origin, its token and its size.

A page of another site can make a browser send requests here, also to names that it has pointed to 127.0.0.1: so the
host must be one of this endpoint's, a foreign origin is refused, and other sites cannot send the cookie. On a host
with other users everybody can connect; the token, which only the owner of the connection file can read, keeps them out.
"""

import asyncio
import contextlib
import hmac
import http.cookies
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.host_port import bracketed
from headrace.core.randomness import secret_token
from headrace.core.security.tls import is_loopback
from headrace.rest.options import (
    DASHBOARD_DIRECTORY,
    REST_ALLOWED_HOSTS,
    REST_AUTHENTICATION,
    REST_MAX_CONTENT_LENGTH,
    WEB_ACCESS_CONTROL_ALLOW_ORIGIN,
    RestAuthentication,
)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApplication = Callable[[Scope, Receive, Send], Awaitable[None]]

SESSION_PATHS: Final = frozenset({"/session", "/v1/session"})
"""Paths at which a browser signs in; they need no token."""
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_PAGE_RULES: Final = (
    b"default-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; "
)
OWN_CONTENT_POLICY: Final = _PAGE_RULES + b"script-src 'self'"
"""Content policy of Headrace's own dashboard: it loads and runs only files of this endpoint, no inline scripts."""
OTHER_CONTENT_POLICY: Final = (
    _PAGE_RULES + b"script-src 'self' 'unsafe-inline'; worker-src 'self' blob:"
)
"""Content policy of a dashboard that replaces Headrace's own: Flink's has inline scripts in its page."""
_LENGTH: Final = re.compile("[0-9]{1,20}")
_SESSIONS_MAX: Final = 100
_SIGN_IN_BYTES_MAX: Final = 8192
_SIGN_IN_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True)
class Refusal:
    """An answer that is given without processing the request any further."""

    status: int
    text: str


class RestGuard:
    """Rules of one endpoint; pure. `token` is empty if authentication is off."""

    def __init__(
        self,
        token: str,
        hosts: Iterable[str],
        *,
        is_tls: bool,
        port: int,
        max_content_length: int,
        allowed_origin: str = "",
        content_policy: bytes = OWN_CONTENT_POLICY,
    ) -> None:
        self._token: Final = token
        self._hosts: Final = frozenset(host.lower() for host in hosts)
        self._is_tls: Final = is_tls
        self._allowed_origin: Final = allowed_origin
        self._max_content_length: Final = max_content_length
        self._content_policy: Final = content_policy
        # Cookies are shared by all ports: two clusters on this host must not overwrite each other's.
        self._cookie_name: Final = f"headrace_{port}"
        # Sessions of browsers that have signed in, oldest first.
        self._sessions: dict[str, None] = {}

    def refuse(self, request: "RequestHead") -> Refusal | None:
        """Return the refusal of a request, or None if it may be answered."""
        if not request.path.startswith("/"):
            return Refusal(400, "the target of the request is not a path of this endpoint")
        if not self._is_our_host(request.header("host")):
            return Refusal(
                403,
                f"the Host header '{request.header('host')}' is not a name of this endpoint; if it should be one, "
                f"add it to '{REST_ALLOWED_HOSTS.key}'",
            )
        if not self._is_our_page(request):
            return Refusal(
                403,
                f"pages of {request.header('origin') or 'other sites'} may not send requests to this endpoint",
            )
        length = request.header("content-length")
        if _LENGTH.fullmatch(length) and int(length) > self._max_content_length:
            return Refusal(413, too_long(self._max_content_length))
        if request.is_public or self.is_known(request):
            return None
        return Refusal(
            401,
            "the request has no token of this cluster: send 'Authorization: Bearer <token>'; the token is in the "
            "connection file that the cluster prints at its start",
        )

    @property
    def token(self) -> str:
        """Return the token that requests must have; empty if none is needed."""
        return self._token

    @property
    def max_content_length(self) -> int:
        """Return the maximum size of a body in bytes."""
        return self._max_content_length

    def is_preflight(self, request: "RequestHead") -> bool:
        """Return whether a request is a browser's preflight for pages of the allowed origin."""
        return bool(
            self._allowed_origin
            and request.method == "OPTIONS"
            and request.header("origin") == self._allowed_origin
            and request.header("access-control-request-method")
            and self._is_our_host(request.header("host"))
        )

    def is_token(self, token: str) -> bool:
        """Return whether `token` is this endpoint's token."""
        return hmac.compare_digest(token.encode(), self._token.encode())

    def sign_in(self) -> str:
        """Open a session; return the `Set-Cookie` header that identifies the browser from now on."""
        session = secret_token().hex()
        self._sessions[session] = None
        while len(self._sessions) > _SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        return self._cookie(session)

    def sign_out(self, cookies: str) -> str:
        """End the session in a `Cookie` header; return the `Set-Cookie` header that removes it from the browser."""
        self._sessions.pop(self._session_in(cookies), None)
        return self._cookie("", is_over=True)

    def _cookie(self, session: str, *, is_over: bool = False) -> str:
        cookie = http.cookies.SimpleCookie({self._cookie_name: session})
        morsel = cookie[self._cookie_name]
        morsel["path"], morsel["samesite"], morsel["httponly"] = "/", "Strict", True
        if self._is_tls:
            morsel["secure"] = True
        if is_over:
            morsel["max-age"] = 0
        return morsel.OutputString()

    def response_headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers of every answer."""
        headers = [
            (b"x-content-type-options", b"nosniff"),
            (b"x-frame-options", b"DENY"),
            (b"referrer-policy", b"no-referrer"),
            (b"content-security-policy", self._content_policy),
        ]
        if self._allowed_origin:
            headers += [
                (b"access-control-allow-origin", self._allowed_origin.encode()),
                (b"access-control-allow-methods", b"GET, POST, PATCH, DELETE"),
                (b"access-control-allow-headers", b"authorization, content-type"),
                (b"vary", b"origin"),
            ]
        return headers

    def _is_our_host(self, host: str) -> bool:
        name, separator, port = host.lower().rpartition(":")
        if not separator or not port.isdigit():
            name = host.lower()
        return name in self._hosts

    def _is_our_page(self, request: "RequestHead") -> bool:
        origin = request.header("origin")
        if origin and origin == self._allowed_origin:
            return True
        if origin:
            scheme = "https" if self._is_tls else "http"
            return origin.lower() == f"{scheme}://{request.header('host').lower()}"
        # Links from other sites may lead to the page, which contains no data.
        return request.is_public_page or request.header("sec-fetch-site") in (
            "",
            "same-origin",
            "none",
        )

    def is_known(self, request: "RequestHead") -> bool:
        """Return whether a request has the token, or comes from a browser that has signed in."""
        if not self._token:
            return True
        scheme, _, token = request.header("authorization").partition(" ")
        if scheme.lower() == "bearer":
            return self.is_token(token.strip())
        session = self._session_in(request.header("cookie"))
        # Cookies are sent to every port of this host: headers of the browser reveal pages of other ports.
        is_own_page = request.header("sec-fetch-site") in ("same-origin", "none")
        return is_own_page and session in self._sessions

    def _session_in(self, cookies: str) -> str:
        """Return the session in a `Cookie` header, which is a plain word; empty if there is none.

        `http.cookies` would unquote all cookies in the header, which takes time quadratic in their number.
        """
        for cookie in cookies.split(";"):
            name, _, value = cookie.strip().partition("=")
            if name == self._cookie_name:
                return value.strip()
        return ""


@dataclass(frozen=True)
class RequestHead:
    """First lines of a request.

    `headers` by name in lower case; `is_public_page`: whether it is a file of the dashboard.
    """

    method: str
    path: str
    headers: MutableMapping[str, str]
    is_public_page: bool = False

    def header(self, name: str) -> str:
        """Return a header, or an empty text."""
        return self.headers.get(name, "")

    @property
    def is_public(self) -> bool:
        """Return whether the answer contains nothing about the cluster."""
        return self.is_public_page or (self.path in SESSION_PATHS and self.method == "POST")


def guard_of(
    settings: Settings,
    token: str,
    address: str,
    port: int,
    *,
    is_tls: bool,
    names: Iterable[str] = (),
) -> RestGuard:
    """Return the rules for an endpoint that listens at `address` and is also called `names`.

    ConfigurationError if everybody could control the cluster.
    """
    if settings.get_option(REST_AUTHENTICATION) is RestAuthentication.NONE:
        if not is_loopback(address):
            raise ConfigurationError(
                REST_AUTHENTICATION.key,
                "none",
                f"everybody who can connect to {address} could control the cluster; leave it at 'token', or bind to "
                f"127.0.0.1",
            )
        token = ""
    allowed_origin = settings.get_option(WEB_ACCESS_CONTROL_ALLOW_ORIGIN)
    if allowed_origin == "*":
        raise ConfigurationError(
            WEB_ACCESS_CONTROL_ALLOW_ORIGIN.key,
            "*",
            "any page that the owner opens could use this endpoint; set one origin, such as https://board.example:8443",
        )
    own = [name.strip() for name in settings.get_option(REST_ALLOWED_HOSTS).split(",")]
    shown = {bracketed(name) for name in (address, *names)}
    return RestGuard(
        token,
        {*_LOOPBACK_NAMES, *shown, *filter(None, own)},
        is_tls=is_tls,
        port=port,
        max_content_length=settings.get_option(REST_MAX_CONTENT_LENGTH),
        allowed_origin=allowed_origin,
        content_policy=OTHER_CONTENT_POLICY
        if settings.get_option(DASHBOARD_DIRECTORY)
        else OWN_CONTENT_POLICY,
    )


def too_long(max_content_length: int) -> str:
    """Return the text for a body that is too long."""
    return f"the body of a request may have at most {max_content_length} bytes (rest.server.max-content-length)"


class GuardedApplication:
    """An ASGI application behind a guard. `is_page` returns whether a path is a file of the dashboard.

    `sign_in_page`: page to which unknown browsers are redirected from the first page; empty if that page asks for the
    token.
    """

    def __init__(
        self,
        application: AsgiApplication,
        guard: RestGuard,
        is_page: Callable[[str], bool],
        sign_in_page: str = "",
    ) -> None:
        self._application: Final = application
        self._guard: Final = guard
        self._is_page: Final = is_page
        self._sign_in_page: Final = sign_in_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._application(scope, receive, send)
            return
        head = RequestHead(
            scope["method"],
            scope["path"],
            {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
            scope["method"] in ("GET", "HEAD") and self._is_page(scope["path"]),
        )

        # Whoever signs in is a stranger still.
        is_stranger = head.is_public and not head.is_public_page
        size_max = _SIGN_IN_BYTES_MAX if is_stranger else self._guard.max_content_length
        body = _BoundedBody(receive, size_max)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [*message.get("headers", [])]
                # Spark's pages have their own stricter policy, and their scripts only run with it.
                names = {name.lower() for name, _ in given}
                added = self._guard.response_headers()
                message["headers"] = given + [each for each in added if each[0] not in names]
            await send(message)

        if self._guard.is_preflight(head):
            await send_with_headers({"type": "http.response.start", "status": 204, "headers": []})
            await send_with_headers({"type": "http.response.body", "body": b""})
            return
        refusal = self._guard.refuse(head)
        if refusal is not None:
            await _answer(refusal, send_with_headers)
            return
        if self._sign_in_page and head.path == "/" and not self._guard.is_known(head):
            # Relative, for servers behind a proxy with a prefix. The browser keeps the part after the `#`.
            place = f"{self._sign_in_page.removeprefix('/')}?back".encode()
            headers = [
                (b"location", place),
                (b"cache-control", b"no-store"),
                (b"content-length", b"0"),
            ]
            await send_with_headers(
                {"type": "http.response.start", "status": 302, "headers": headers}
            )
            await send_with_headers({"type": "http.response.body", "body": b""})
            return

        async def send_unless_too_long(message: Message) -> None:
            if not body.is_too_long:
                await send_with_headers(message)

        # The application would answer that it cannot read the body.
        with contextlib.suppress(BodyTooLongError, TimeoutError):
            async with asyncio.timeout(_SIGN_IN_TIMEOUT_S if is_stranger else None):
                await self._application(scope, body, send_unless_too_long)
        if body.is_too_long:
            await _answer(Refusal(413, too_long(size_max)), send_with_headers)


class BodyTooLongError(Exception):
    """A body without a declared length exceeded the maximum."""


class _BoundedBody:
    """Receives a body up to a maximum size."""

    def __init__(self, receive: Receive, size_max: int) -> None:
        self._receive: Final = receive
        self._left = size_max
        self.is_too_long = False

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                self.is_too_long = True
                raise BodyTooLongError
        return message


async def _answer(refusal: Refusal, send: Send) -> None:
    body = msgspec.json.encode({"errors": [refusal.text]})
    headers = [
        (b"content-type", b"application/json; charset=UTF-8"),
        (b"content-length", str(len(body)).encode()),
    ]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="headrace"'))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
