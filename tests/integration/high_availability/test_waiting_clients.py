"""A client whose leader is killed, as it takes a job or later: it gets the result from the next one, over REST."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from headrace.core.process.failpoints import Failpoint
from testkit.waiting import wait_until
from tests.architecture.floor_plan import ROOT
from tests.integration.high_availability.drivers import NumbersJob, rivals, settings_of

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM: Final = "tests.integration.high_availability.client_program"
FAILOVER_S: Final = 12.0
SLACK_S: Final = 30.0
"""For a machine that does much else."""


class ClientProcess:
    """A client that brings one job and waits for it."""

    def __init__(self, folder: Path, job: NumbersJob) -> None:
        settings, self._log_file = folder / "client.json", folder / "client.log"
        settings.write_text(json.dumps(settings_of(folder)))
        with self._log_file.open("wb") as log:
            self._process: Final = subprocess.Popen(
                [sys.executable, "-m", PROGRAM, str(settings), str(job.file)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def next_event(self) -> dict[str, Any]:
        """Wait for what it tells next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._log_file.read_text()
        return json.loads(line)

    def wait(self) -> int:
        return self._process.wait()

    def dispose(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def waiting_client(folder: Path, job: NumbersJob) -> Generator[ClientProcess]:
    client = ClientProcess(folder, job)
    try:
        yield client
    finally:
        client.dispose()


def test_a_client_that_waits_gets_its_result_from_the_next_leader(tmp_path: Path) -> None:
    job = NumbersJob(tmp_path)
    rest = {"rest.port": "0"}
    with rivals(tmp_path) as pair:
        first = pair.start("first", **rest)
        first_address = first.wait_for("serves")["address"]
        second = pair.start("second", **rest)
        second.await_standby()
        with waiting_client(tmp_path, job) as client:
            submitted = client.next_event()
            assert submitted == {"event": "submitted", "address": first_address}
            job.await_begin()
            before = sum(job.output().values())
            first.kill()
            killed_s = time.monotonic()
            wait_until(lambda: sum(job.output().values()) > before, 120, "output of the next")
            assert time.monotonic() - killed_s < FAILOVER_S + SLACK_S
            result = client.next_event()
            assert result["status"] == "FINISHED"
            assert result["address"] == second.wait_for("serves")["address"]
            assert client.wait() == 0
        assert job.output() == job.expected


@pytest.mark.parametrize("step", [Failpoint.JOB_ACCEPTED, Failpoint.JOB_STORED])
def test_a_client_whose_leader_dies_as_it_takes_a_job_submits_it_once_to_the_next(
    tmp_path: Path, step: Failpoint
) -> None:
    # What is so big is brought apart from the job, and before it.
    job = NumbersJob(tmp_path, padding=400_000, count=1_000)
    rest = {"rest.port": "0"}
    with rivals(tmp_path) as pair:
        first = pair.start("first", failpoints=f"{step.value}=kill", **rest)
        first.wait_for("serves")
        second = pair.start("second", **rest)
        second.await_standby()
        with waiting_client(tmp_path, job) as client:
            submitted = client.next_event()
            assert first.wait() == -9
            second_address = second.wait_for("serves")["address"]
            assert submitted == {"event": "submitted", "address": second_address}
            result = client.next_event()
            assert (result["event"], result["status"]) == ("result", "FINISHED")
            assert client.wait() == 0
        assert job.output() == job.expected
        pair.assert_forgotten(job)


@pytest.mark.parametrize("step", [Failpoint.JOB_ACCEPTED, Failpoint.JOB_STORED])
def test_a_client_of_which_two_leaders_die_as_they_take_its_job_submits_it_once_to_the_third(
    tmp_path: Path, step: Failpoint
) -> None:
    job = NumbersJob(tmp_path, padding=6_000_000, count=1_000)
    rest = {"rest.port": "0"}
    with rivals(tmp_path) as pair:
        first = pair.start("first", failpoints=f"{Failpoint.JOB_ACCEPTED.value}=kill", **rest)
        first.wait_for("serves")
        second = pair.start("second", failpoints=f"{step.value}=kill", **rest)
        second.await_standby()
        with waiting_client(tmp_path, job) as client:
            assert first.wait() == -9
            # Of two that stand by, any could follow.
            second.wait_for("leads")
            third = pair.start("third", **rest)
            assert second.wait() == -9
            third_address = third.wait_for("serves")["address"]
            assert client.next_event() == {"event": "submitted", "address": third_address}
            result = client.next_event()
            assert (result["event"], result["status"]) == ("result", "FINISHED")
            assert client.wait() == 0
        assert job.output() == job.expected
        pair.assert_forgotten(job)


@pytest.mark.parametrize(
    "step", [Failpoint.JOB_ACCEPTED, Failpoint.JOB_WRITTEN, Failpoint.JOB_STORED]
)
def test_a_client_whose_leader_freezes_as_it_takes_a_job_has_it_run_once_by_the_next(
    tmp_path: Path, step: Failpoint
) -> None:
    job = NumbersJob(tmp_path, padding=400_000, count=1_000)
    rest = {"rest.port": "0"}
    with rivals(tmp_path) as pair:
        first = pair.start("first", failpoints=f"{step.value}=stop", **rest)
        first.wait_for("serves")
        second = pair.start("second", **rest)
        second.await_standby()
        with waiting_client(tmp_path, job) as client:
            wait_until(lambda: first.is_frozen, 120, "the first leader is frozen")
            second.wait_for("serves")
            first.go_on()
            assert client.next_event()["event"] == "submitted"
            result = client.next_event()
            assert (result["event"], result["status"]) == ("result", "FINISHED")
            assert client.wait() == 0
        assert job.output() == job.expected
        pair.assert_forgotten(job)
