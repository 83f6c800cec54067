"""Masters of Spark: those that there are, and whether one answers, before a JVM is started."""

import socket

import pytest

from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.spark.master import (
    MasterUnreachableError,
    UnknownMasterError,
    api_server_place,
    given_by_user,
    refuse_unknown_master,
    refuse_unreachable_master,
    standalone_places,
)


@pytest.mark.parametrize(
    "master",
    ["local", "local[4]", "local[*]", "local[2, 3]", "local-cluster[2,2,2048]", "yarn", "k8s://https://host:443"],
)  # fmt: skip
def test_what_spark_takes_is_taken(master: str) -> None:
    refuse_unknown_master(master)
    assert standalone_places(master) is None


@pytest.mark.parametrize(
    "master", ["foo", "local[", "local[0]", "local[x]", "spark://", "spark://host", "spark://host:99999",
               "spark://a:7077,b", "http://host:7077", "mesos://host:5050", "yarn-client", "local[2] "],
)  # fmt: skip
def test_what_spark_would_refuse_is_refused_with_what_there_is(master: str) -> None:
    with pytest.raises(UnknownMasterError, match=r"is not a Spark master: use local\[n\]"):
        refuse_unknown_master(master)


def test_standalone_masters_are_read_one_by_one() -> None:
    refuse_unknown_master("spark://a:7077,[::1]:7078")
    assert standalone_places("spark://a:7077,[::1]:7078") == (("a", 7077), ("::1", 7078))


def test_a_master_that_refuses_connections_is_named_with_what_is_next() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(
        MasterUnreachableError,
        match=rf"spark://127\.0\.0\.1:{port} cannot be reached \(.*refused.*master-timeout is 5 s\): check",
    ):
        refuse_unreachable_master(f"spark://127.0.0.1:{port}", 5, SystemClock())


@pytest.mark.parametrize(
    "master, place",
    [
        ("k8s://https://host:6443", ("host", 6443)),
        ("k8s://host:6443", ("host", 6443)),
        ("k8s://https://[::1]/cluster", ("::1", 443)),
        ("k8s://http://127.0.0.1", ("127.0.0.1", 80)),
        ("spark://host:7077", None),
    ],
)
def test_the_api_server_of_kubernetes_is_read(master: str, place: tuple[str, int] | None) -> None:
    assert api_server_place(master) == place


def test_an_api_server_that_does_not_answer_is_named_unless_a_proxy_may_reach_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        master = f"k8s://https://127.0.0.1:{gone.getsockname()[1]}"
    with pytest.raises(
        MasterUnreachableError, match="the address that 'kubectl cluster-info' shows"
    ):
        refuse_unreachable_master(master, 5, SystemClock())
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    refuse_unreachable_master(master, 5, SystemClock())


def test_one_of_several_masters_is_enough() -> None:
    dialled: list[tuple[str, int]] = []

    def connect(place: tuple[str, int], timeout_s: float) -> socket.socket:
        dialled.append(place)
        assert 0 < timeout_s <= 8
        if place[0] == "down":
            raise TimeoutError("timed out")
        return socket.socket()

    refuse_unreachable_master("spark://down:1,up:2,other:3", 8, SystemClock(), connect)
    assert dialled == [("down", 1), ("up", 2)]


def test_an_interpreter_in_an_archive_of_a_job_is_not_that_of_the_cluster() -> None:
    settings = {"python.executable": "venv.zip/bin/python"}
    assert given_by_user(Settings(settings)) == {"spark.pyspark.python": "venv.zip/bin/python"}
    assert given_by_user(Settings({**settings, "python.archives": "/x/venv.zip"})) == {}
