"""A ResourceManager that follows another one knows by which interpreter each TaskManager runs that it takes over.

Real processes: those of a job that names an interpreter run by it.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Final

import pytest

from headrace.cluster.cluster_handle import ClusterHandle
from headrace.core.ids import JobId
from testkit.waiting import wait_until
from tests.integration.programs.process_cluster import process_cluster
from tests.integration.programs.process_jobs import BOUNDED, ProcessJobs

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

OTHER: Final = str(Path(sys.executable).with_name("python3"))
"""Another path to the interpreter of the tests: TaskManagers that run by it have all packages."""
SHARED: Final = {
    **BOUNDED,
    # Whoever may have a TaskManager gets it: only its interpreter tells who may not.
    "headrace.resourcemanager.exclusive-task-managers": "false",
    "resourcemanager.taskmanager-timeout": "1 h",
    "heartbeat.timeout": "200 s",
}


def take_over(handle: ClusterHandle) -> None:
    """Have another ResourceManager follow on this one."""
    cluster = handle._cluster  # pyright: ignore[reportPrivateUsage]
    failing = cluster.resource_manager

    def bug() -> None:
        raise LookupError("a bug")

    failing.run_async(bug)
    wait_until(lambda: cluster.resource_manager is not failing, 30, "another one follows")


def test_a_job_with_its_own_interpreter_gets_its_task_manager_back_and_usual_jobs_do_not(
    tmp_path: Path,
) -> None:
    assert sys.executable != OTHER
    with process_cluster(tmp_path, 3, SHARED) as (handle, driver):
        jobs = ProcessJobs(handle, driver)

        def begin(python_executable: str = "") -> tuple[JobId, str]:
            """Start a job; return it and its TaskManager."""
            job_id = jobs.submit(1, python_executable)
            wait_until(lambda: jobs.runs(job_id), 60, f"job {job_id} runs")
            [name] = jobs.held_by(job_id)
            return job_id, name

        own, its = begin(OTHER)
        [process] = driver.live
        assert (process.name, process.interpreter) == (its, OTHER)
        # While it does not come back, a usual job has no reason to wait for it.
        os.kill(process.pid, signal.SIGSTOP)
        take_over(handle)
        _, usual_one = begin()
        assert usual_one != its
        os.kill(process.pid, signal.SIGCONT)
        wait_until(lambda: jobs.held_by(own) == {its}, 60, "the job has its TaskManager back")
        details = handle.call(handle.dispatcher.request_job_details(own))
        assert details.restart_count == 0

        # Nobody has it now, and it is known as what it is also to the next one.
        jobs.cancel(own)
        take_over(handle)
        _, another_one = begin()
        assert another_one not in (its, usual_one)
        _, again = begin(OTHER)
        assert again == its
        interpreters = {one.name: one.interpreter for one in driver.live}
        assert interpreters == {
            its: OTHER,
            usual_one: sys.executable,
            another_one: sys.executable,
        }
