"""Forwards Spark's own web page, below SPARK_PAGE, to clients that this endpoint has authenticated.

Spark's page has no passwords. Behind its filter JWSFilter it answers only requests with a token signed by a key of the
session, which no browser has: this endpoint, which authenticates its users, signs for them. Only reads are forwarded.
Source: Spark, core/src/main/scala/org/apache/spark/ui/JWSFilter.scala; RFC 7515, appendix A.1.
"""

import base64
import hashlib
import hmac
import http.client
from typing import Final
from urllib.parse import urlsplit

from fastapi import Request, Response

from headrace.core.errors import HostError
from headrace.core.threads import run_in_thread
from headrace.rest.cluster_view import ClusterView, SparkPage
from headrace.rest.handler_errors import ForbiddenError, UnavailableError

SPARK_PAGE: Final = "/spark"
_TOKEN: Final = (b'{"alg":"HS256","typ":"JWT"}', b'{"sub":"headrace"}')
_TIMEOUT_S: Final = 60.0
_ASKED_MAX: Final = 8
"""Maximum number of pages requested from Spark concurrently, of at most _BYTES_MAX bytes each."""
_BYTES_MAX: Final = 1 << 26
_PASSED_ON: Final = ("cache-control", "content-disposition", "content-security-policy")


async def spark_page(request: Request) -> Response:
    """Return the answer of Spark's page. ForbiddenError for requests that would end jobs; UnavailableError."""
    cluster: ClusterView = request.app.state.cluster
    page = cluster.spark_page
    assert page is not None, "the route exists only with a Spark page"
    path = request.scope["raw_path"].decode("ascii").removeprefix(SPARK_PAGE)
    query = request.scope["query_string"].decode("ascii")
    target = f"{path}?{query}" if query else path
    if path.rstrip("/").endswith("/kill"):
        raise ForbiddenError(
            "jobs and stages cannot be ended on Spark's page: cancel the job in the dashboard"
        )
    if page.asked_count >= _ASKED_MAX:
        raise UnavailableError(f"{_ASKED_MAX} requests for Spark's pages are waiting; try again")
    page.asked_count += 1
    try:
        return await run_in_thread("headrace-spark-page", lambda: _fetched(page, target))
    finally:
        page.asked_count -= 1


def _fetched(page: SparkPage, target: str) -> Response:
    try:
        base = page.address()
    except HostError as error:
        raise UnavailableError(str(error)) from error
    place = urlsplit(base)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=_TIMEOUT_S)
    # Spark's pages begin their links with the context.
    headers = {"Authorization": f"Bearer {_token(page.key)}", "X-Forwarded-Context": SPARK_PAGE}
    try:
        connection.request("GET", target, headers=headers)
        found = connection.getresponse()
        body = found.read(_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException) as error:
        raise UnavailableError(f"Spark's page at {base} does not answer") from error
    finally:
        connection.close()
    if len(body) > _BYTES_MAX:
        raise UnavailableError(f"{target} of Spark's page has more than {_BYTES_MAX} bytes")
    passed_on = {name: value for name in _PASSED_ON if (value := found.getheader(name))}
    if address := found.getheader("location"):
        passed_on["location"] = _below_page(address)
    return Response(body, found.status, passed_on, found.getheader("content-type"))


def _below_page(address: str) -> str:
    """Return the path below SPARK_PAGE for an address of Spark's page."""
    place = urlsplit(address)
    path = f"{SPARK_PAGE}{place.path.removeprefix(SPARK_PAGE)}"
    return f"{path}?{place.query}" if place.query else path


def _token(key: str) -> str:
    """Return a JSON web token that is signed with a base64url-encoded key."""
    text = ".".join(map(_encoded, _TOKEN))
    # Two extra padding characters are accepted, one too few is an error.
    signature = hmac.digest(base64.urlsafe_b64decode(f"{key}=="), text.encode(), hashlib.sha256)
    return f"{text}.{_encoded(signature)}"


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
