"""Drivers that elect their leader through ZooKeeper: it dies, freezes, or loses its connection; output comes out once.

A real server, real processes and signals.
"""

import time
from collections.abc import Generator
from pathlib import Path

import pytest

from testkit.waiting import wait_until
from tests.integration.high_availability.drivers import (
    RATE,
    DriverProcess,
    NumbersJob,
    Rivals,
    rivals,
)
from tests.integration.high_availability.zookeeper_server import ZooKeeperServer, zookeeper_server
from tests.integration.programs.s3_server import S3Server

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

AWAY_S = 30
"""Half of the time that a tolerant leader goes on alone: a busy machine writes rows, and starts a server, slowly."""


@pytest.fixture
def server(tmp_path: Path) -> Generator[ZooKeeperServer]:
    with zookeeper_server(tmp_path / "zookeeper") as one:
        yield one


@pytest.fixture
def pair(
    request: pytest.FixtureRequest, tmp_path: Path, server: ZooKeeperServer
) -> Generator[Rivals]:
    """Drivers that are closed before the server, with which they have sessions. With `s3`: what they store is there."""
    store_uri = ""
    if getattr(request, "param", "folder") == "s3":
        store: S3Server = request.getfixturevalue("object_store")
        store_uri = store.folder(tmp_path.name)
    with rivals(tmp_path, store_uri) as one:
        yield one


def start(
    pair: Rivals,
    server: ZooKeeperServer,
    name: str,
    *,
    session: str = "10 s",
    tolerates: bool = False,
) -> DriverProcess:
    return pair.start(name, **server.options(session=session, tolerates=tolerates))


def begin(first: DriverProcess, second: DriverProcess, job: NumbersJob) -> None:
    first.say("submit", str(job.file))
    first.wait_for("submitted")
    job.await_begin()
    second.await_standby()


def assert_finishes(driver: DriverProcess, job: NumbersJob) -> None:
    driver.say("result", str(job.job_id))
    assert driver.wait_for("result")["status"] == "FINISHED"
    assert job.output() == job.expected


@pytest.mark.parametrize("pair", ["folder", "s3"], indirect=True)
def test_a_standby_goes_on_with_the_job_of_a_killed_leader(
    pair: Rivals, server: ZooKeeperServer
) -> None:
    job = NumbersJob(pair.folder, padding=200_000)
    first = start(pair, server, "first")
    first.wait_for("leads")
    second = start(pair, server, "second")
    begin(first, second, job)
    first.kill()
    second.wait_for("leads")
    assert_finishes(second, job)
    pair.assert_forgotten(job)


def test_a_tolerant_leader_goes_on_while_the_server_is_away(
    pair: Rivals, server: ZooKeeperServer
) -> None:
    job = NumbersJob(pair.folder, count=45_000)
    first = start(pair, server, "first", session="90 s", tolerates=True)
    first.wait_for("leads")
    second = start(pair, server, "second", session="90 s", tolerates=True)
    begin(first, second, job)
    server.stop()
    wait_until(lambda: "no connection to ZooKeeper" in first.log, 60, "the loss of the connection")
    stopped_s, before = time.monotonic(), sum(job.output().values())
    # So many rows take as long at least.
    lines_after = before + AWAY_S * RATE
    wait_until(lambda: sum(job.output().values()) >= lines_after, 120, "output all the while")
    assert time.monotonic() - stopped_s > AWAY_S * 0.9
    server.start()
    assert_finishes(first, job)
    assert second.find("leads") is None
    assert first.find("ended") is None


def test_a_leader_that_does_not_tolerate_a_lost_connection_leaves_its_job_to_the_next(
    pair: Rivals, server: ZooKeeperServer
) -> None:
    job = NumbersJob(pair.folder)
    first = start(pair, server, "first")
    first.wait_for("leads")
    second = start(pair, server, "second")
    begin(first, second, job)
    server.stop()
    first.await_log("this process is a standby")
    assert second.find("leads") is None
    first.stop()
    server.start()
    second.wait_for("leads")
    first.go_on()
    assert_finishes(second, job)


def test_a_leader_whose_session_expires_leads_again_and_its_task_managers_go_on(
    pair: Rivals, server: ZooKeeperServer
) -> None:
    job = NumbersJob(pair.folder)
    only = start(pair, server, "only", session="4 s", tolerates=True)
    only.wait_for("leads")
    only.say("submit", str(job.file))
    only.wait_for("submitted")
    job.await_begin()
    workers = only.workers()
    only.stop()
    wait_until(lambda: server.session_count == 0, 60, "the end of its session")
    before = sum(job.output().values())
    only.go_on()
    only.await_log("this process is a standby")
    only.await_log("(epoch 2)")
    wait_until(lambda: sum(job.output().values()) > before, 120, "output of the next term")
    assert_finishes(only, job)
    assert only.workers() == workers, "TaskManagers were started anew"
    assert only.find("ended") is None


def test_a_leader_that_was_frozen_past_its_session_stands_by_behind_its_successor(
    pair: Rivals, server: ZooKeeperServer
) -> None:
    job = NumbersJob(pair.folder, count=6_000)
    first = start(pair, server, "first", tolerates=True)
    first.wait_for("leads")
    second = start(pair, server, "second", tolerates=True)
    begin(first, second, job)
    first.stop()
    second.wait_for("leads")
    before = sum(job.output().values())
    wait_until(lambda: sum(job.output().values()) > before, 120, "output of the second leader")
    first.go_on()
    first.await_log("this process is a standby")
    assert_finishes(second, job)
    second.close()
    first.await_log("(epoch 3)")
