"""The REST server over a real socket: sign-in, refusals, polling, start and end."""

import contextlib
import http.client
import json
import re
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, HostError, PortInUseError
from headrace.core.security.tls import TlsIdentity, generate_identity
from headrace.rest import bounded_uvicorn_server
from headrace.rest.authentication import GuardedApplication, Receive, Scope, Send
from headrace.rest.client import RestClient
from headrace.rest.client_errors import HomeFolderError, RestUnreachableError
from headrace.rest.cluster_view import ControlPlane
from headrace.rest.home.connections import read_connection
from headrace.rest.http_server import HttpServer, ListeningPlace, bind
from headrace.rest.rest_server import (
    place_of_cluster,
    refuse_impossible_settings,
    start_rest_server,
)
from headrace.rpc.errors import ENDPOINT_TERMINATED, RecipientUnreachableError
from testkit.waiting import wait_until
from tests.unit.rest.golden_shapes import assert_golden
from tests.unit.rest.sample_cluster import COUNTER, RUNNING_JOB, TASK_MANAGER
from tests.unit.rest.served_cluster import ServedCluster, served_cluster

JOB = f"/jobs/{RUNNING_JOB.hex()}"


def test_the_token_lies_in_a_file_that_its_owner_alone_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_cluster(tmp_path, monkeypatch) as cluster:
        (file,) = (tmp_path / "clusters").glob("*.json")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        content = json.loads(file.read_text())
        assert (content["address"], content["name"]) == (cluster.server.address, "sample")
        assert cluster.get("/overview").status == 200
    assert list((tmp_path / "clusters").glob("*.json")) == []


def test_requests_without_the_token_from_elsewhere_or_for_another_host_are_refused(
    cluster: ServedCluster,
) -> None:
    bearer = {"Authorization": f"Bearer {cluster.token}"}
    assert cluster.ask("GET", "/jobs", headers={}).status == 401
    assert cluster.ask("GET", "/jobs", headers={"Authorization": "Bearer x"}).status == 401
    assert cluster.ask("GET", "/openapi.json", headers={}).status == 401
    assert cluster.ask("GET", "/nowhere", headers={}).status == 401, "not even what there is"
    assert cluster.ask("GET", "/jobs", headers=bearer | {"Host": "evil.example"}).status == 403
    form = {"Origin": "http://evil.example", "Content-Type": "application/x-www-form-urlencoded"}
    stopped = cluster.ask("POST", f"{JOB}/stop", b"drain=true", headers=bearer | form)
    assert stopped.status == 403
    assert cluster.dispatcher.savepoints == []


def test_a_browser_signs_in_once_and_out_again(cluster: ServedCluster) -> None:
    assert cluster.ask("POST", "/session", {"token": "wrong"}, headers={}).status == 401
    signed_in = cluster.ask("POST", "/session", {"token": cluster.token}, headers={})
    assert_golden("POST /session", signed_in.json, signed_in.status)
    cookie = signed_in.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
    known = {"Cookie": cookie.partition(";")[0], "Sec-Fetch-Site": "same-origin"}
    assert cluster.ask("GET", "/jobs", headers=known).status == 200
    signed_out = cluster.ask("DELETE", "/session", headers=known)
    assert "Max-Age=0" in signed_out.headers["set-cookie"]
    assert cluster.ask("GET", "/jobs", headers=known).status == 401


def test_a_stranger_who_signs_in_may_send_little(cluster: ServedCluster) -> None:
    assert cluster.ask("POST", "/session", b" " * 9000, headers={}).status == 413


def test_connections_that_send_nothing_are_closed_and_there_are_only_so_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_uvicorn_server, "HTTP_CONNECTIONS_MAX", 5)
    monkeypatch.setattr(bounded_uvicorn_server, "REQUEST_HEAD_TIMEOUT_S", 0.2)
    with served_cluster(tmp_path, monkeypatch) as cluster:
        assert cluster.get("/overview").status == 200
        host, _, port = cluster.authority.partition(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(8)]
        for one in silent:
            one.settimeout(20)
            # Half a head; where the connection is closed already this may fail.
            with contextlib.suppress(OSError):
                one.sendall(b"GET /overview HTTP/1.1\r\n")
        for one in silent:
            with contextlib.suppress(ConnectionError):
                assert one.recv(1) == b""
            one.close()
        assert cluster.get("/overview").status == 200


def test_connections_count_before_their_tls_handshakes_which_end_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_uvicorn_server, "HTTP_CONNECTIONS_MAX", 3)
    monkeypatch.setattr(bounded_uvicorn_server, "HANDSHAKE_TIMEOUT_S", 1.0)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    identity = generate_identity(SystemClock().now_ms())
    server = server_of_all_addresses(identity)
    try:
        port = int(server.address.rpartition(":")[2])
        assert server.address == f"https://127.0.0.1:{port}", "not 0.0.0.0, which nobody can reach"
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(6)]
        for one in silent:
            one.settimeout(60)
            with contextlib.suppress(ConnectionError):
                assert one.recv(1) == b""
            one.close()
        (file,) = (tmp_path / "clusters").glob("*.json")
        connection = read_connection(file)
        found = RestClient(connection.address, connection.token, ca_file=connection.ca_file)
        # A busy machine takes longer for an honest handshake, and to forget those that came to nothing.
        monkeypatch.setattr(bounded_uvicorn_server, "HANDSHAKE_TIMEOUT_S", 60.0)
        wait_until(lambda: answers(found), what="an answer after the silent connections")
    finally:
        server.close()


def answers(client: RestClient) -> bool:
    try:
        return client.get("/anything") == {"said": "yes"}
    except RestUnreachableError:
        return False


def server_of_all_addresses(identity: TlsIdentity) -> HttpServer:
    """Serve an application of one answer at all addresses of this machine."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"14")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"said":"yes"}'})

    server = HttpServer(
        ListeningPlace("0.0.0.0", "historyserver.web.address", "0.0.0.0", "0", "port"),
        lambda guard: GuardedApplication(answer, guard, lambda path: False),
        Settings({}),
        SystemClock(),
        name="history server",
        identity=identity,
        is_history=True,
    )
    server.start()
    return server


def test_answers_tell_browsers_to_be_careful(cluster: ServedCluster) -> None:
    headers = cluster.get("/overview").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "access-control-allow-origin" not in headers
    assert headers["content-type"] == "application/json; charset=UTF-8"
    assert "server" not in headers


def test_a_data_set_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served_cluster(tmp_path, monkeypatch) as cluster:
        data_set = (b"d" * 16).hex()
        assert cluster.ask("DELETE", f"/datasets/{'0' * 32}").status == 404
        answer = cluster.ask("DELETE", f"/datasets/{data_set}")
        path = f"/datasets/delete/{answer.json['request-id']}"
        found = cluster.get_until(path, lambda one: one["status"]["id"] == "COMPLETED").json
        assert found["operation"] == {}
        assert [each.data_set_id.hex() for each in cluster.resource_manager.released] == [data_set]


def test_a_job_is_cancelled_and_the_cluster_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_cluster(tmp_path, monkeypatch) as cluster:
        assert (cluster.ask("PATCH", f"{JOB}?mode=cancel").status) == 202
        assert (cluster.ask("GET", f"{JOB}/yarn-cancel").json) == {}
        assert cluster.dispatcher.cancelled == [RUNNING_JOB] * 2
        heartbeat = cluster.ask("PATCH", f"{JOB}/clientHeartbeat", {"expiredTimestamp": 7})
        assert (heartbeat.status, heartbeat.json) == (202, {})
        assert cluster.dispatcher.heartbeats == [(RUNNING_JOB, 7)]
        assert cluster.ask("DELETE", "/cluster").json == {}
        assert cluster.dispatcher.is_shut_down


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RecipientUnreachableError("dispatcher", "shut_down", ENDPOINT_TERMINATED), 503),
        (HostError("Spark refuses"), 500),
    ],
)
def test_whoever_ends_a_cluster_that_is_gone_before_it_answers_is_to_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    async def shut_down_cluster() -> None:
        raise error

    with served_cluster(tmp_path, monkeypatch) as cluster:
        monkeypatch.setattr(cluster.dispatcher, "shut_down_cluster", shut_down_cluster)
        assert cluster.ask("DELETE", "/cluster").status == status


def test_pages_that_are_polled_ask_the_control_thread_once_per_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"web.refresh-interval": "1 h"}
    with served_cluster(tmp_path, monkeypatch, settings) as cluster:
        of = f"/vertices/{COUNTER.hex()}"
        for end in ["", "/watermarks", of, f"{of}/backpressure", f"{of}/subtasktimes"] * 5:
            assert cluster.get(JOB + end).status == 200
        assert cluster.dispatcher.calls["request_job_details"] == 1
        assert cluster.dispatcher.calls["request_job_plan"] == 1


def test_where_browsers_may_not_cancel_they_are_told_so_and_commands_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_cluster(tmp_path, monkeypatch, {"web.cancel.enable": "false"}) as cluster:
        assert cluster.get("/config").json["features"]["web-cancel"] is False
        token = {"Authorization": f"Bearer {cluster.token}"}
        browser = {**token, "Sec-Fetch-Site": "same-origin"}
        application = JOB.replace("/jobs/", "/applications/")
        cancelling = (
            ("PATCH", JOB),
            ("GET", f"{JOB}/yarn-cancel"),
            ("POST", f"{application}/cancel"),
        )
        for method, path in cancelling:
            refused = cluster.ask(method, path, headers=browser)
            assert (refused.status, "headrace cancel" in refused.errors) == (403, True)
        assert cluster.dispatcher.cancelled == []
        for method, path in cancelling:
            assert cluster.ask(method, path, headers=token).status == 202
        assert cluster.dispatcher.cancelled == [RUNNING_JOB] * 3


POLLED = (
    "/overview",
    "/jobs",
    "/jobs/overview",
    "/jobs/metrics?get=uptime",
    "/applications/overview",
    "/taskmanagers",
    f"/taskmanagers/{TASK_MANAGER}",
    "/taskmanagers/metrics?get=Status.JVM.CPU.Load",
    "/jobmanager/metrics?get=numRunningJobs",
    "/datasets",
)
"""Pages about all jobs and processes, which every open dashboard asks for."""


def test_lists_ask_the_control_thread_once_per_interval_for_ten_browsers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_cluster(tmp_path, monkeypatch, {"web.refresh-interval": "1 h"}) as cluster:

        def look(_: int) -> list[int]:
            return [cluster.get(path).status for path in POLLED * 2]

        with ThreadPoolExecutor(10) as browsers:
            statuses = list(browsers.map(look, range(10)))
        assert statuses == [[200] * 2 * len(POLLED)] * 10
        assert cluster.resource_manager.calls == {
            "request_resource_overview": 1,
            "request_task_manager_details": 1,
            "request_task_manager_metrics": 1,
            "list_data_sets": 1,
        }
        job_count = len(cluster.get("/jobs").json["jobs"])
        assert cluster.dispatcher.calls == {"list_jobs": 1, "request_job_details": job_count}


def test_who_changes_jobs_and_data_sets_sees_it_in_the_next_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_cluster(tmp_path, monkeypatch, {"web.refresh-interval": "1 h"}) as cluster:
        for path in ("/jobs/overview", "/datasets"):
            cluster.get(path)
        assert cluster.ask("PATCH", f"{JOB}?mode=cancel").status == 202
        for path in ("/jobs/overview", "/datasets"):
            cluster.get(path)
        assert cluster.dispatcher.calls["list_jobs"] == 2
        assert cluster.resource_manager.calls["list_data_sets"] == 2


def test_an_error_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served_cluster(tmp_path, monkeypatch, {"web.refresh-interval": "1 h"}) as cluster:
        cluster.dispatcher.failure = ValueError("for a moment")
        answer = cluster.get(JOB)
        assert (answer.status, answer.json["errors"][0]) == (500, "Internal server error.")
        cluster.dispatcher.failure = None
        assert cluster.get(JOB).status == 200


def test_a_body_that_is_too_long_is_refused_also_where_it_does_not_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"rest.server.max-content-length": "1000"}
    with served_cluster(tmp_path, monkeypatch, settings) as cluster:
        assert cluster.ask("POST", f"{JOB}/stop", b" " * 1001).status == 413
        connection = http.client.HTTPConnection(cluster.authority, timeout=30)
        headers = {"Authorization": f"Bearer {cluster.token}", "Content-Type": "application/json"}
        chunks = iter([b" " * 600] * 2)
        connection.request("POST", f"{JOB}/stop", chunks, headers, encode_chunked=True)
        assert connection.getresponse().status == 413
        connection.close()


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain", ""])
def test_json_under_another_type_or_none_is_taken_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content_type: str
) -> None:
    with served_cluster(tmp_path, monkeypatch) as cluster:
        headers = {"Authorization": f"Bearer {cluster.token}", "Content-Type": content_type}
        body = {"target-directory": "/x", "cancel-job": False}
        assert cluster.ask("POST", f"{JOB}/savepoints", body, headers=headers).status == 202
        refused = cluster.ask("POST", f"{JOB}/savepoints", b"{", headers=headers)
        assert refused.status == 400 and "JSON" in refused.errors


def test_a_flame_graph_is_taken_once_somebody_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{JOB}/vertices/{COUNTER.hex()}/flamegraph"
    with served_cluster(tmp_path, monkeypatch) as cluster:
        assert cluster.get(path).json == {"endTimestamp": -3}
        cluster.get_until(path, lambda found: "data" in found)
        data = cluster.get(f"{path}?type=ON_CPU").json["data"]
        assert (data["name"], data["children"][0]["name"]) == ("root", "program.f:7")
        # Flink's web UI spells it so.
        assert cluster.get(f"{path}?type=on_cpu").json["data"] == data
        assert cluster.get(f"{path}?type=WALL").status == 400
        assert cluster.get(f"{path}?subtaskindex=2").status == 404
    off = {"rest.flamegraph.enabled": "false"}
    with served_cluster(tmp_path / "other", monkeypatch, off) as cluster:
        assert cluster.get(path).json == {"endTimestamp": -2}


def test_the_first_free_port_of_a_range_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=rf"{port}.*rest.port"):
            bind(place_of_cluster(Settings({"rest.port": str(port)})))
        both = Settings({"rest.port": "1", "rest.bind-port": f"{port},0"})
        with bind(place_of_cluster(both)) as listener:
            assert listener.getsockname()[1] != port
    with pytest.raises(ConfigurationError, match="the address cannot be bound"):
        bind(place_of_cluster(Settings({"rest.port": "0", "rest.bind-address": "203.0.113.7"})))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rest.port", "many"),
        ("rest.bind-port", "99999"),
        ("rest.authentication", "sometimes"),
        ("rest.flamegraph.num-samples", "0"),
        ("rest.flamegraph.stack-depth", "0"),
        ("web.refresh-interval", "often"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_started(
    key: str, value: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(key)):
        refuse_impossible_settings(Settings({key: value}))
    refuse_impossible_settings(Settings({}))


def test_authentication_is_not_switched_off_for_other_hosts() -> None:
    given = {"rest.authentication": "none", "rest.bind-address": "0.0.0.0"}
    with pytest.raises(ConfigurationError, match=r"rest\.authentication"):
        refuse_impossible_settings(Settings(given))
    refuse_impossible_settings(Settings({**given, "rest.enabled": "false"}))


def test_an_endpoint_without_authentication_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with served_cluster(tmp_path, monkeypatch, {"rest.authentication": "none"}) as cluster:
        assert cluster.ask("GET", "/jobs", headers={}).status == 200
    (told,) = [one.message for one in caplog.records if "rest.authentication" in one.message]
    assert told.startswith(
        "rest.authentication is 'none': everybody who can connect to http://127.0.0.1"
    )


def test_beyond_this_host_there_is_no_rest_without_a_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pytest.raises(ConfigurationError, match="beyond this host REST requires TLS"),
        served_cluster(tmp_path, monkeypatch, {"rest.bind-address": "0.0.0.0"}),
    ):
        pass


def test_a_task_manager_that_has_just_gone_spoils_no_figures_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_cluster(tmp_path, monkeypatch) as cluster:
        cluster.dispatcher.failure = ValueError("a JobMaster has just gone")
        assert len(cluster.get("/taskmanagers").json["taskmanagers"]) == 1
        assert cluster.get("/jobs/metrics?get=uptime").json == []


@pytest.mark.parametrize("is_session", [False, True])
def test_a_program_runs_without_rest_where_its_home_cannot_be_made_and_a_session_does_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_session: bool
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", "/dev/null/x")
    nobody: Any = None
    control = ControlPlane(nobody, nobody, nobody)
    settings, clock = Settings({"rest.port": "0"}), SystemClock()
    if is_session:
        with pytest.raises(HomeFolderError, match="HEADRACE_HOME"):
            start_rest_server(control, settings, clock, name="job", is_session=True)
        return
    assert start_rest_server(control, settings, clock, name="job") is None
    assert "the dashboard and REST could not be started: HEADRACE_HOME (/dev/null/x)" in caplog.text
