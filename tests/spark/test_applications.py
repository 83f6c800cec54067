"""Applications that recover: whatever dies, and whenever, main runs again, and each line is written once."""

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from testkit.kubernetes_api import kubernetes_api
from testkit.waiting import wait_until
from tests.integration.high_availability.zookeeper_server import zookeeper_server
from tests.spark.applications import (
    CLIENTS_OF_JOBS,
    COUNT,
    RATE,
    ApplicationDrivers,
    expected_lines,
    job_ids,
    two_jobs,
)
from tests.spark.commands import Commands
from tests.spark.programs import Program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

LEFT = 75
INTERRUPTED = 130
POINTERS = "/api/v1/namespaces/streams/configmaps/orders-job-graphs"
MOMENTS = (
    "before-submission",
    "while-it-runs",
    "after-its-result",
    "between-jobs",
    "while-it-collects",
)


@pytest.fixture
def drivers(tmp_path: Path, started: list[Program]) -> ApplicationDrivers:
    return ApplicationDrivers(tmp_path, Commands(tmp_path, started), {})


@dataclass(frozen=True)
class Election:
    """A place of the election, and the pointers to stored jobs that it has."""

    settings: dict[str, str]
    pointers: Callable[[], list[str]]


@pytest.fixture
def election(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Election]:
    """ZooKeeper, or a stand-in for the API server of Kubernetes."""
    with contextlib.ExitStack() as stack:
        if request.param == "zookeeper":
            server = stack.enter_context(zookeeper_server(tmp_path / "zookeeper"))
            client: Any = KazooClient(server.address)
            client.start()
            stack.callback(client.close)
            stack.callback(client.stop)
            settings = {
                "high-availability.zookeeper.quorum": server.address,
                "high-availability.zookeeper.client.session-timeout": "10 s",
            }
            yield Election(
                {"high-availability.type": "zookeeper", **settings},
                lambda: client.get_children("/headrace/two/jobgraphs"),
            )
        else:
            api = stack.enter_context(kubernetes_api())
            (tmp_path / "kube-config").write_text(api.kube_config())
            terms = "high-availability.kubernetes.leader-election."
            settings = {
                "kubernetes.config.file": str(tmp_path / "kube-config"),
                "kubernetes.cluster-id": "orders",
                "kubernetes.namespace": "streams",
                f"{terms}lease-duration": "10 s",
                f"{terms}retry-period": "1 s",
            }
            yield Election(
                {"high-availability.type": "kubernetes", **settings},
                lambda: [*(api.objects[POINTERS].get("data") or {})],
            )


def freeze_past_its_lease(driver: Program, folder: Path) -> None:
    """Freeze the first leader until its lease is over, for which nobody waits."""
    driver.pause()
    record = folder / "ha" / "two" / "leader" / "epoch-00000001"
    renewed_s = record.stat().st_mtime
    # By its own clock its renew deadline, 4 s, has passed.
    wait_until(lambda: time.time() > renewed_s + 6, 60, "a lease that is over")
    driver.process.send_signal(signal.SIGCONT)


@pytest.mark.timeout(900)
@pytest.mark.long
def test_a_supervised_application_outlives_kills_at_each_step_and_clients_of_its_jobs_get_each_result_once(
    drivers: ApplicationDrivers, tmp_path: Path
) -> None:
    drivers.write(two_jobs(jobs=CLIENTS_OF_JOBS))
    left = drivers.start("-d", "--supervise", arguments=MOMENTS)
    # Its second driver is the first one with a job.
    assert left.wait(300) == 0, left.report()
    wait_until(lambda: not left.processes(), 500, "the end of driver and supervisor")
    consoles = [one.read_text() for one in (tmp_path / "home").rglob("jobmanager.console.out")]
    told = "\n".join(consoles)
    assert drivers.output() == expected_lines(), told
    assert [where for where in MOMENTS if (tmp_path / f"died-{where}").exists()] == list(MOMENTS)
    assert told.count("main begins") == 1 + len(MOMENTS), told
    assert told.count("was killed by signal 9") + told.count("killed by SIGKILL") == len(MOMENTS)
    assert "application 'two' has ended in order: its supervisor ends" in told
    found = job_ids(told.splitlines())
    assert {name: len(ids) for name, ids in found.items()} == {"one": 1, "two": 1}, found
    ends = [line for line in told.splitlines() if line.startswith("end of one: ")]
    assert (len(ends), len(set(ends))) == (3, 1), ends
    assert int(ends[0].split()[3]) >= COUNT / RATE * 1000 * 0.9 and "FINISHED" in ends[0]
    assert told.count("collected each once: True") == 1, told
    assert drivers.stored_files() == []


@pytest.mark.repetition("an election by ZooKeeper calls main again below")
def test_a_standby_calls_main_again_when_the_driver_is_killed(drivers: ApplicationDrivers) -> None:
    first, second = drivers.start_pair()
    listed = drivers.commands.answer("cluster", "list")["clusters"]
    kinds = {one["name"]: one["kind"] for one in listed}
    assert kinds == {"two": "application", "two-standby": "standby"}
    assert not any("main begins" in line for line in second.out)
    drivers.go()
    wait_until(lambda: bool(drivers.output()), 120, "output of the first driver")
    os.kill(first.pid, signal.SIGKILL)
    killed_s = time.monotonic()
    second.wait_for_line("main begins")
    print(f"main began again {time.monotonic() - killed_s:.1f} s after the kill")
    assert second.wait() == 0, second.report()
    assert any("which continues" in line for line in second.err), second.report()
    assert not any("differs" in line for line in second.err), second.report()
    assert drivers.output() == expected_lines()
    assert drivers.stored_files() == []
    # Who starts the program now wants another run of it.
    again = drivers.start()
    assert again.wait() == 0, again.report()
    assert drivers.output() == expected_lines() + expected_lines()
    assert not set(job_ids(second.out)["one"]) & set(job_ids(again.out)["one"])


@pytest.mark.parametrize(
    "election",
    [
        "zookeeper",
        pytest.param(
            "kubernetes", marks=pytest.mark.repetition("an election by ZooKeeper is the same")
        ),
    ],
    indirect=True,
)
@pytest.mark.long
def test_a_service_elects_the_driver_that_goes_on_when_the_leader_is_killed(
    election: Election, tmp_path: Path, started: list[Program]
) -> None:
    drivers = ApplicationDrivers(tmp_path, Commands(tmp_path, started), election.settings)
    first, second = drivers.start_pair()
    drivers.go()
    wait_until(lambda: bool(drivers.output()), 120, "output of the first driver")
    assert len(election.pointers()) == 1
    os.kill(first.pid, signal.SIGKILL)
    assert second.wait() == 0, second.report()
    assert any("which continues" in line for line in second.err), second.report()
    assert drivers.output() == expected_lines()
    assert (election.pointers(), drivers.stored_files()) == ([], [])


@pytest.mark.long
def test_what_is_collected_begins_again_where_the_leadership_was_lost_meanwhile(
    drivers: ApplicationDrivers, tmp_path: Path
) -> None:
    drivers.write(two_jobs(jobs=CLIENTS_OF_JOBS))
    first = drivers.start()
    first.wait_for_line("collects")
    freeze_past_its_lease(first, tmp_path)
    assert first.wait() == LEFT, first.report()
    assert "while main collected" in "".join(
        first.err
    ) or "does not lead the cluster now" in "".join(first.err)
    second = drivers.start("-d")
    assert second.wait(300) == 0, second.report()
    wait_until(lambda: not second.processes(), 300, "the end of the second driver")
    consoles = [one.read_text() for one in (tmp_path / "home").rglob("jobmanager.console.out")]
    assert "".join(consoles).count("collected each once: True") == 1
    assert drivers.output() == expected_lines()


def test_ctrl_c_ends_an_application_and_a_second_one_leaves_it_no_less_ended(
    drivers: ApplicationDrivers,
) -> None:
    first, second = drivers.start_pair()
    drivers.go()
    wait_until(lambda: bool(drivers.output()), 120, "output of the first driver")
    first.interrupt()
    wait_until(lambda: any("interrupted" in line for line in first.err), 60, "its first answer")
    first.interrupt()
    assert first.wait() == INTERRUPTED, first.report()
    assert second.wait() == INTERRUPTED, second.report()
    assert any("main ended under an earlier driver, with code 130" in line for line in second.err)
    assert not any("main begins" in line for line in second.out)
    assert drivers.stored_files() == []
    written = drivers.output()
    assert not written - expected_lines() and written != expected_lines()
    first.assert_nothing_is_left()


@pytest.mark.long
def test_a_driver_whose_jvm_is_killed_leaves_its_application_to_the_next_one(
    drivers: ApplicationDrivers,
) -> None:
    first, standby = drivers.start_pair()
    os.kill(standby.jvms()[0].pid, signal.SIGKILL)
    assert standby.wait() == LEFT, standby.report()
    assert "while this driver waited to lead" in standby.error_line()
    drivers.go()
    wait_until(lambda: bool(drivers.output()), 120, "output of the first driver")
    os.kill(first.jvms()[0].pid, signal.SIGKILL)
    assert first.wait() == LEFT, first.report()
    # The job that was stored goes on, whatever this main says of it.
    drivers.write(two_jobs(operator="other lines"))
    second = drivers.start()
    assert second.wait() == 0, second.report()
    told = "".join(second.err)
    assert re.search(r"execution 1 .* differs .* submitted with another graph", told), told
    assert drivers.output() == expected_lines()


def test_an_application_whose_main_raises_ends_with_its_standby_and_is_not_repeated(
    drivers: ApplicationDrivers,
) -> None:
    drivers.write(two_jobs(last="raise ValueError('no such airport')"))
    first, second = drivers.start_pair()
    drivers.go()
    assert first.wait() == 1, first.report()
    assert "no such airport" in first.error_line()
    assert second.wait() == 1, second.report()
    assert any("main ended under an earlier driver, with code 1" in line for line in second.err)
    assert not any("main begins" in line for line in second.out)
    assert drivers.output() == expected_lines()
    assert drivers.stored_files() == []
    first.assert_nothing_is_left()


@pytest.mark.long
def test_a_driver_that_was_frozen_while_another_one_followed_ends_its_main(
    drivers: ApplicationDrivers,
) -> None:
    first, second = drivers.start_pair()
    drivers.go()
    wait_until(lambda: bool(drivers.output()), 120, "output of the first driver")
    first.pause()
    second.wait_for_line("main begins")
    first.process.send_signal(signal.SIGCONT)
    assert first.wait() == LEFT, first.report()
    assert any("another process leads it now" in line for line in first.err), first.report()
    assert second.wait() == 0, second.report()
    assert drivers.output() == expected_lines()


def test_a_driver_that_was_frozen_and_had_no_standby_goes_on_with_its_main(
    drivers: ApplicationDrivers, tmp_path: Path
) -> None:
    first = drivers.start()
    wait_until(lambda: bool(drivers.output()), 120, "output of the first driver")
    freeze_past_its_lease(first, tmp_path)
    assert first.wait() == 0, first.report()
    assert (tmp_path / "ha" / "two" / "leader" / "epoch-00000002").exists()
    assert first.out.count("main begins\n") == 1
    assert drivers.output() == expected_lines()


@pytest.mark.long
def test_sigterm_hands_an_application_over_and_a_stop_of_its_cluster_ends_it(
    drivers: ApplicationDrivers,
) -> None:
    # It does not end before it is stopped.
    drivers.write(two_jobs(rate=5))
    first, second = drivers.start_pair()
    drivers.go()
    wait_until(lambda: bool(drivers.output()), 120, "output of the first driver")
    first.process.terminate()
    assert first.wait() == 128 + signal.SIGTERM, first.report()
    assert "terminated: the jobs go on from their last checkpoints" in first.report()
    second.wait_for_line("main begins")
    third = drivers.commands.daemon("run", "-d", "--standby", *drivers.options, "two.py")
    assert any("standby 'two-standby' takes over when" in line for line in third.out)
    drivers.commands("cluster", "stop", "two")
    assert second.wait() == 1, second.report()
    wait_until(lambda: not third.processes(), 120, "the end of the standby")
    assert drivers.stored_files() == []
    written = drivers.output()
    assert not written - expected_lines() and written != expected_lines()
