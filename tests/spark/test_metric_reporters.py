"""Reporters of a cluster on Spark: the driver and each TaskManager report, in processes of their own."""

import json
import re
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from testkit.waiting import wait_until
from tests.spark.metric_receivers import (
    OtlpReceiver,
    PushGateway,
    otlp_receiver,
    push_gateway,
)
from tests.spark.processes import listening_ports_of
from tests.spark.programs import COUNTING, Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

PORTS = range(47300, 47400)
SETTINGS = {
    "metrics.reporters": "page,lines,gateway,collector",
    "metrics.reporter.page.factory.class": "prometheus",
    "metrics.reporter.page.port": f"{PORTS.start}-{PORTS.stop - 1}",
    "metrics.reporter.lines.factory.class": "jsonlines",
    "metrics.reporter.lines.interval": "200 ms",
    "metrics.reporter.gateway.factory.class": "prometheuspushgateway",
    "metrics.reporter.gateway.jobName": "counting-",
    "metrics.reporter.gateway.interval": "500 ms",
    "metrics.reporter.collector.factory.class": "otel",
    "metrics.reporter.collector.interval": "500 ms",
    # A trace of each checkpoint goes to the collector.
    "execution.checkpointing.interval": "500 ms",
}
SUBTASK = re.compile(
    r'^flink_taskmanager_job_task_numRecordsIn\{.*subtask_index="(\d)"', re.MULTILINE
)
RUNNING_JOBS = re.compile(r"^flink_jobmanager_numRunningJobs\S* 1\.0$", re.MULTILINE)
PUSHED_SUBTASK = re.compile(
    r'^flink_taskmanager_job_task_numRecordsIn\{.*job="(counting-\w+)".*subtask_index="(\d)"',
    re.MULTILINE,
)
PUSHED_JOBS = re.compile(
    r'^flink_jobmanager_numRunningJobs\{.*job="(counting-\w+)".*\} 1$', re.MULTILINE
)
COUNTED, RUNNING = "taskmanager.job.task.numRecordsIn", "jobmanager.numRunningJobs"
THREADS = re.compile(
    r'^flink_taskmanager_Status_JVM_Threads_Count\{.*tm_id="([^"]+)"', re.MULTILINE
)


def page_of(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return answer.read().decode()


def page_ports(pids: Iterable[int]) -> list[int]:
    return sorted(listening_ports_of(set(pids)) & set(PORTS))


def is_open(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def groups_of(file: Path) -> str:
    """The scopes of all groups that a process has written, after a line that is being written."""
    lines = file.read_text().splitlines(keepends=True)
    return " ".join(json.dumps(json.loads(line)) for line in lines if line.endswith("\n"))


def assert_all_push(gateway: PushGateway) -> None:
    """Assert that driver and TaskManagers come to push, each under a name of its own."""

    def are_there() -> bool:
        page = gateway.page()
        of_tasks, of_jobs = dict(PUSHED_SUBTASK.findall(page)), PUSHED_JOBS.findall(page)
        return len({*of_tasks, *of_jobs}) == 3 and sorted(of_tasks.values()) == ["0", "1"]

    wait_until(are_there, 60, f"a group of each process at {gateway.url}")


def assert_all_send(collector: OtlpReceiver) -> None:
    """Assert that driver and TaskManagers come to send, and that the driver sends its checkpoints' traces."""

    def are_there() -> bool:
        names = collector.metric_names()
        of_tasks = {one for one, found in names.items() if COUNTED in found}
        of_jobs = {one for one, found in names.items() if RUNNING in found}
        tracing = {one for one, found in collector.span_names().items() if "Checkpoint" in found}
        return (len(names), len(of_tasks), tracing) == (3, 2, of_jobs) and len(of_jobs) == 1

    wait_until(are_there, 60, "metrics of each process and traces of the driver at the collector")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[PushGateway]:
    with push_gateway(tmp_path) as found:
        yield found


@pytest.fixture
def collector() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as found:
        yield found


@pytest.mark.parametrize(
    "master",
    [
        pytest.param("local[4]", marks=pytest.mark.repetition("the same on a local-cluster")),
        "local-cluster[2,2,1024]",
    ],
)
def test_driver_and_task_managers_report_each_on_a_port_in_a_file_to_a_gateway_and_to_a_collector(
    tmp_path: Path,
    started: list[Program],
    gateway: PushGateway,
    collector: OtlpReceiver,
    master: str,
) -> None:
    folder = tmp_path / "metrics"
    settings = {
        **SETTINGS,
        "metrics.reporter.lines.directory": str(folder),
        "metrics.reporter.gateway.hostUrl": gateway.url,
        "metrics.reporter.collector.exporter.endpoint": collector.url,
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
    }
    options = [part for key, value in settings.items() for part in ("-D", f"{key}={value}")]
    program = headrace_run(tmp_path, COUNTING, "--master", master, *options)
    started.append(program)
    program.wait_for_line("number 20")

    (driver_port,) = page_ports([program.pid])
    ports = [page_ports([one.pid]) for one in program.task_managers()]
    assert [len(each) for each in ports] == [1, 1], program.report()
    worker_ports = [port for (port,) in ports]
    assert len({driver_port, *worker_ports}) == 3
    wait_until(
        lambda: RUNNING_JOBS.search(page_of(driver_port)) is not None, 60, "the job on the page"
    )
    assert "flink_taskmanager_" not in page_of(driver_port)
    pages = [page_of(port) for port in worker_ports]
    assert len({THREADS.findall(page)[0] for page in pages}) == 2, "each under its own tm_id"
    assert sorted({index for page in pages for index in SUBTASK.findall(page)}) == ["0", "1"]
    assert not any("flink_jobmanager_" in page for page in pages)

    def written() -> list[str]:
        return [groups_of(file) for file in folder.glob("*.jsonl")]

    def is_all_written() -> bool:
        found = written()
        of_driver = [text for text in found if "numRunningJobs" in text]
        return (
            len(found) == 3
            and len(of_driver) == 1
            and sum("numRecordsIn" in one for one in found) == 2
        )

    wait_until(is_all_written, 60, f"a file of each process in {folder}")
    assert_all_push(gateway)
    assert_all_send(collector)

    program.interrupt()
    program.wait()
    program.assert_nothing_is_left()
    assert not any(is_open(port) for port in (driver_port, *worker_ports))
    assert "flink_" not in gateway.page(), "each process deletes what it pushed"
