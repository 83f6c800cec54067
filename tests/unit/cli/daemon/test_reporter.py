"""Reporter: one report, and an error where nobody is there to hear it."""

import os

import msgspec
import pytest

from headrace.cli.daemon.messages import Report, Reporter, StarterGoneError
from headrace.client.deployed_cluster import DeployedCluster


def test_a_report_is_told_once() -> None:
    reading, writing = os.pipe()
    reporter = Reporter(writing)
    assert reporter.is_open
    reporter.tell(Report(DeployedCluster("http://127.0.0.1:8081")))
    reporter.tell(Report(DeployedCluster("http://127.0.0.1:8082")))
    assert not reporter.is_open
    with open(reading, "rb") as pipe:
        found = msgspec.json.decode(pipe.read(), type=Report)
    assert found == Report(DeployedCluster("http://127.0.0.1:8081"))


def test_children_of_the_daemon_do_not_hold_the_pipe_open() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    reporter = Reporter(writing)
    assert not os.get_inheritable(writing)
    reporter.tell(Report())
    os.close(reading)


def test_a_daemon_whose_starter_is_gone_is_told_so() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(StarterGoneError, match="the daemon ends too"):
        Reporter(writing).tell(Report())
