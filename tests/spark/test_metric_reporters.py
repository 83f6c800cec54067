"""Reporters of a cluster on Spark: the driver and each TaskManager report, in processes of their own."""

import json
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from urllib.request import urlopen

import pytest

from testkit.waiting import wait_until
from tests.spark.processes import listening_ports_of
from tests.spark.programs import COUNTING, Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

PORTS = range(47300, 47400)
SETTINGS = {
    "metrics.reporters": "page,lines",
    "metrics.reporter.page.factory.class": "prometheus",
    "metrics.reporter.page.port": f"{PORTS.start}-{PORTS.stop - 1}",
    "metrics.reporter.lines.factory.class": "jsonlines",
    "metrics.reporter.lines.interval": "200 ms",
}
SUBTASK = re.compile(
    r'^flink_taskmanager_job_task_numRecordsIn\{.*subtask_index="(\d)"', re.MULTILINE
)
RUNNING_JOBS = re.compile(r"^flink_jobmanager_numRunningJobs\S* 1\.0$", re.MULTILINE)
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


@pytest.mark.parametrize("master", ["local[4]", "local-cluster[2,2,1024]"])
def test_driver_and_task_managers_report_each_on_a_port_and_in_a_file_of_its_own(
    tmp_path: Path, started: list[Program], master: str
) -> None:
    folder = tmp_path / "metrics"
    settings = {**SETTINGS, "metrics.reporter.lines.directory": str(folder)}
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

    program.interrupt()
    program.wait()
    program.assert_nothing_is_left()
    assert not any(is_open(port) for port in (driver_port, *worker_ports))
