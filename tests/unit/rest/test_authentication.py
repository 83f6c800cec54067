"""Authentication: requests that the REST endpoint answers, and those that it refuses before it looks at them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.security.tls import generate_identity
from headrace.rest.authentication import RequestHead, RestGuard, guard_of
from headrace.rest.client import RestClient
from headrace.rest.client_errors import RestUnreachableError, UnauthorizedError
from headrace.rest.home.connections import find_connection
from tests.unit.rest.sample_cluster import RUNNING_JOB
from tests.unit.rest.served_cluster import ServedCluster, served_cluster

TOKEN = "a" * 64
HOST = "127.0.0.1:8081"


def guard(**changed: object) -> RestGuard:
    arguments: dict[str, object] = {
        "is_tls": False,
        "port": 8081,
        "max_content_length": 100,
    } | changed
    return RestGuard(TOKEN, ["127.0.0.1", "localhost", "[::1]"], **arguments)  # type: ignore[arg-type]


def head(
    method: str = "GET", path: str = "/jobs", *, page: bool = False, **headers: str
) -> RequestHead:
    given = {"host": HOST} | {name.replace("_", "-"): value for name, value in headers.items()}
    return RequestHead(method, path, given, page)


BEARER = f"Bearer {TOKEN}"


def status(request: RequestHead, rules: RestGuard | None = None) -> int | None:
    refusal = (rules or guard()).refuse(request)
    return None if refusal is None else refusal.status


def test_the_token_opens_every_route() -> None:
    assert status(head(authorization=BEARER)) is None
    assert status(head("DELETE", "/cluster", authorization=f"bearer  {TOKEN} ")) is None


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer " + "b" * 64, f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"],
)
def test_without_the_token_there_is_no_answer(authorization: str) -> None:
    refusal = guard().refuse(head(authorization=authorization))
    assert refusal is not None
    assert refusal.status == 401
    assert "connection file" in refusal.text
    assert TOKEN not in refusal.text


def test_the_page_and_its_sign_in_need_no_token() -> None:
    assert status(head(path="/", page=True)) is None
    assert status(head("POST", "/session")) is None
    assert status(head("DELETE", "/session")) == 401
    assert status(head("GET", "/session")) == 401


def test_a_browser_that_has_signed_in_is_known_by_a_cookie_that_is_not_the_token() -> None:
    rules = guard()
    cookie = rules.sign_in()
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert "Secure" in guard(is_tls=True).sign_in()
    own = {"cookie": cookie.partition(";")[0], "sec_fetch_site": "same-origin"}
    assert status(head(**own), rules) is None
    assert status(head(**own | {"cookie": own["cookie"] + "0"}), rules) == 401
    assert status(head(**own), guard()) == 401, "of another cluster"
    for other in ("same-site", "cross-site"):
        assert status(head(**own | {"sec_fetch_site": other}), rules) == 403, "another port's page"
    assert status(head(cookie=own["cookie"]), rules) == 401, "no browser"


def test_a_browser_is_signed_in_to_two_clusters_of_one_host_at_a_time() -> None:
    first, second = guard(port=8081), guard(port=8082)
    cookies = [rules.sign_in().partition(";")[0] for rules in (first, second)]
    assert [one.partition("=")[0] for one in cookies] == ["headrace_8081", "headrace_8082"]
    # A browser sends the cookies of a host to all of its ports.
    both = {"cookie": "; ".join(cookies), "sec_fetch_site": "same-origin"}
    assert status(head(**both), first) is None
    assert status(head(**both), second) is None
    first.sign_out(both["cookie"])
    assert status(head(**both), first) == 401
    assert status(head(**both), second) is None


def test_who_has_signed_out_is_not_known_any_more() -> None:
    rules = guard()
    first, second = (rules.sign_in().partition(";")[0] for _ in range(2))
    assert first != second
    assert "Max-Age=0" in rules.sign_out(first)
    assert status(head(cookie=first, sec_fetch_site="same-origin"), rules) == 401
    assert status(head(cookie=second, sec_fetch_site="same-origin"), rules) is None
    for _ in range(100):
        rules.sign_in()
    assert status(head(cookie=second, sec_fetch_site="same-origin"), rules) == 401, "the oldest"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8081", "", "127.0.0.1.evil.example:8081"]
)
def test_another_name_for_this_host_is_refused_even_with_the_token(host: str) -> None:
    assert status(head(authorization=BEARER, host=host)) == 403


@pytest.mark.parametrize("host", ["localhost:8081", "LOCALHOST", "[::1]:8081", "127.0.0.1"])
def test_own_names_are_accepted(host: str) -> None:
    assert status(head(authorization=BEARER, host=host)) is None


def test_pages_of_other_origins_are_refused() -> None:
    rules = guard()
    cookie = rules.sign_in().partition(";")[0]
    browser = {"cookie": cookie, "sec_fetch_site": "same-origin"}
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999", f"https://{HOST}"):
        assert status(head("POST", "/jobs/x/stop", **browser, origin=origin), rules) == 403
    own = browser | {"origin": f"http://{HOST}"}
    assert status(head("POST", "/jobs/x/stop", **own), rules) is None
    assert status(head(cookie=cookie, sec_fetch_site="cross-site"), rules) == 403
    assert status(head(path="/", page=True, sec_fetch_site="cross-site")) is None, (
        "a link to the page"
    )


def test_an_origin_that_was_allowed_may_ask() -> None:
    rules = guard(allowed_origin="https://ops.example")
    assert status(head(authorization=BEARER, origin="https://ops.example"), rules) is None
    assert (b"access-control-allow-origin", b"https://ops.example") in rules.response_headers()
    asks = {"origin": "https://ops.example", "access_control_request_method": "PATCH"}
    assert rules.is_preflight(head("OPTIONS", **asks))
    assert not rules.is_preflight(head("OPTIONS", **asks | {"origin": "https://evil.example"}))
    assert not guard().is_preflight(head("OPTIONS", **asks)), "no origin is allowed"
    assert not any(name.startswith(b"access-control") for name, _ in guard().response_headers())


def test_a_body_that_says_it_is_too_long_is_refused() -> None:
    assert status(head("POST", authorization=BEARER, content_length="101")) == 413
    assert status(head("POST", authorization=BEARER, content_length="100")) is None


def test_authentication_can_be_switched_off_on_loopback_alone() -> None:
    settings = Settings({"rest.authentication": "none"})
    open_guard = guard_of(settings, TOKEN, "127.0.0.1", 8081, is_tls=False)
    assert (status(head(), open_guard), open_guard.token) == (None, "")
    with pytest.raises(ConfigurationError, match="could control the cluster"):
        guard_of(settings, TOKEN, "0.0.0.0", 8081, is_tls=True)


def test_no_origin_stands_for_all() -> None:
    settings = Settings({"web.access-control-allow-origin": "*"})
    with pytest.raises(ConfigurationError, match="set one origin"):
        guard_of(settings, TOKEN, "127.0.0.1", 8081, is_tls=False)


def test_the_name_that_clients_are_told_is_a_name_of_the_endpoint() -> None:
    rules = guard_of(Settings({}), TOKEN, "127.0.0.1", 8081, is_tls=False, names=("vm",))
    assert status(head(authorization=BEARER, host="vm:8081"), rules) is None


def test_names_behind_a_proxy_are_allowed_by_an_option() -> None:
    settings = Settings({"headrace.rest.allowed-hosts": "streams.example, other.example"})
    rules = guard_of(settings, TOKEN, "127.0.0.1", 8081, is_tls=False)
    assert status(head(authorization=BEARER, host="streams.example"), rules) is None
    assert status(head(authorization=BEARER, host="evil.example"), rules) == 403


@pytest.fixture
def tls_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedCluster]:
    """A cluster that listens at all addresses of this machine."""
    identity = generate_identity(SystemClock().now_ms())
    settings = {"rest.bind-address": "0.0.0.0"}
    with served_cluster(tmp_path, monkeypatch, settings, identity=identity) as served:
        yield served


def test_beyond_this_host_the_endpoint_speaks_tls_with_the_certificate_of_its_connection_file(
    tls_cluster: ServedCluster,
) -> None:
    found = find_connection(None, print)
    address, ca_file = found.connection.address, found.connection.ca_file
    assert address.startswith("https://")
    assert RestClient.of(found).get("/jobs")["jobs"]
    with pytest.raises(UnauthorizedError, match="no token was sent"):
        RestClient(address, ca_file=ca_file).get("/jobs")
    assert tls_cluster.ask("GET", "/jobs", headers={}).status == 401
    with pytest.raises(RestUnreachableError, match="certificate is not trusted"):
        RestClient(address, tls_cluster.token).get("/jobs")


@pytest.mark.parametrize("command", [["list"], ["cancel", RUNNING_JOB.hex()]])
def test_a_command_says_at_first_that_a_port_speaks_tls_and_how_to_name_it(
    tls_cluster: ServedCluster, tmp_path: Path, command: list[str]
) -> None:
    plain = tls_cluster.server.address.replace("https:", "http:")
    first_line = first_line_of(tmp_path, *command, "-m", plain)
    assert first_line.startswith(f"error: no cluster answers at {plain}: the port uses TLS: ")
    assert f"use the address {tls_cluster.server.address};" in first_line


def test_a_command_says_at_first_that_a_port_does_not_speak_tls_and_how_to_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_cluster(tmp_path, monkeypatch) as served:
        plain = served.server.address
        first_line = first_line_of(tmp_path, "list", "-m", plain.replace("http:", "https:"))
    assert "the port does not use TLS: " in first_line
    assert f"use the address {plain};" in first_line


def first_line_of(folder: Path, *arguments: str) -> str:
    """Return what a command says first that fails, where there is no connection file."""
    environment = {**os.environ, "HEADRACE_HOME": str(folder / "elsewhere")}
    command = [sys.executable, "-m", "headrace", *arguments]
    failed = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert failed.returncode == 1, failed.stdout + failed.stderr
    return failed.stderr.splitlines()[0]


def test_the_cookie_of_an_endpoint_with_tls_travels_over_tls_alone(
    tls_cluster: ServedCluster,
) -> None:
    signed_in = tls_cluster.ask("POST", "/session", {"token": tls_cluster.token}, headers={})
    assert signed_in.status == 200
    cookie, *rules = signed_in.headers["set-cookie"].split("; ")
    assert {"Secure", "HttpOnly", "SameSite=Strict"} <= set(rules)
    browser = {"Cookie": cookie, "Sec-Fetch-Site": "same-origin"}
    assert tls_cluster.ask("GET", "/jobs", headers=browser).status == 200


def test_a_command_in_a_process_of_its_own_lists_jobs_over_tls(tls_cluster: ServedCluster) -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "headrace", "list"], capture_output=True, text=True
    )
    assert listed.returncode == 0, listed.stderr
    assert f" : {RUNNING_JOB.hex()} : " in listed.stdout
