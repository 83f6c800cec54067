"""Jobs of one session on real processes: whatever one does to its TaskManager, the others go on undisturbed."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.process.process_memory import container_memory_bytes
from headrace.core.randomness import system_random
from headrace.functions.sink import DiscardingSink
from headrace.gateways.dispatcher import JobResult
from headrace.graph.job_graph_generator import generate_job_graph
from testkit.waiting import wait_until
from tests.integration.programs.process_cluster import ProcessDriver, process_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SETTINGS = {
    "headrace.resourcemanager.exclusive-task-managers": "true",
    # Two of different jobs would fit into one process.
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.network.min": "32mb",
    "taskmanager.memory.network.max": "32mb",
    # As if the host were short of memory, of which each may hold 600 mb.
    "headrace.taskmanager.memory.reserve": "1",
    "headrace.taskmanager.processes-per-host": str(container_memory_bytes() // (600 << 20)),
    # A job whose TaskManager is lost has failed.
    "restart-strategy.type": "none",
}
TASK_MANAGERS = 3
LEFT_BEHIND = "_left_behind_by_a_job"


class Session:
    """A cluster with a job that runs all the time, in a TaskManager of its own."""

    def __init__(self, handle: ClusterHandle, driver: ProcessDriver, folder: Path) -> None:
        self.handle, self.driver = handle, driver
        self._progress = folder / "progress"
        self._progress.touch()
        self.steady = self.submit(writing_to(self._progress))
        self.wait_for_progress()
        self.own = self.live
        """TaskManagers of the job that runs all the time."""

    @property
    def live(self) -> set[str]:
        return {one.name for one in self.driver.live}

    def submit(self, function: Callable[[int], int]) -> JobId:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(1)
        source = DataGeneratorSource(
            lambda index: index, type_info=Types.LONG(), rows_per_second=100
        )
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        numbers.map(function, Types.LONG()).sink_to(DiscardingSink())
        job_id = JobId.generate(system_random())
        self.handle.submit(generate_job_graph(env.get_stream_graph(), job_id, Settings(SETTINGS)))
        return job_id

    def status(self, job_id: JobId) -> JobStatus:
        return self.handle.call(self.handle.dispatcher.request_job_status(job_id))

    def result(self, job_id: JobId) -> JobResult:
        return self.handle.call(self.handle.dispatcher.request_job_result(job_id), 60)

    def cancel(self, job_id: JobId, *, is_forced: bool = False) -> None:
        self.handle.call(self.handle.dispatcher.cancel_job(job_id, is_forced))

    def wait_for_progress(self) -> None:
        before = self._progress.stat().st_size
        wait_until(lambda: self._progress.stat().st_size > before + 3, what="progress of the job")

    def assert_undisturbed(self) -> None:
        self.wait_for_progress()
        assert self.status(self.steady) is JobStatus.RUNNING
        # What the other job ran in has gone with it.
        wait_until(lambda: self.live == self.own, what="the end of the other job's process")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    scratch = tmp_path_factory.mktemp("task_managers")
    with process_cluster(scratch, TASK_MANAGERS, SETTINGS) as (handle, driver):
        yield Session(handle, driver, tmp_path_factory.mktemp("files"))


def writing_to(file: Path) -> Callable[[int], int]:
    path = str(file)

    def write(value: int) -> int:
        with open(path, "ab") as progress:
            progress.write(b".")
        return value

    return write


def marking(file: Path) -> Callable[[int], int]:
    """Writes whether an earlier job has left something in this process, and leaves something."""
    path = str(file)

    def mark(value: int) -> int:
        if value == 0:
            found = hasattr(sys, LEFT_BEHIND)
            setattr(sys, LEFT_BEHIND, bytearray(16 << 20))
            Path(f"{path}.new").write_text(f"{os.getpid()} {found}")
            os.replace(f"{path}.new", path)
        return value

    return mark


class Traced:
    """A function that writes in which process it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._path = str(file)

    def __call__(self, value: int) -> int:
        return value

    def __reduce__(self) -> tuple[Callable[[str], Callable[[int], int]], tuple[str]]:
        return unpickled, (self._path,)


def unpickled(path: str) -> Callable[[int], int]:
    with open(path, "a") as processes:
        processes.write(f"{os.getpid()}\n")
    return lambda value: value


def fail(value: int) -> int:
    raise ValueError("of this job alone")


def leave(value: int) -> int:
    os._exit(3)


def hoarding() -> Callable[[int], int]:
    """Keeps 20 MB more with each record, up to 1.2 GB."""
    kept: list[bytes] = []

    def hoard(value: int) -> int:
        if len(kept) < 60:
            kept.append(b"x" * (20 << 20))
        return value

    return hoard


def devour(value: int) -> int:
    """Takes more and more with the first record, up to 4 GB, and never returns."""
    kept: list[bytes] = []
    while True:
        if len(kept) < 4_000:
            kept.append(b"x" * (1 << 20))


@pytest.mark.parametrize("function", [hoarding(), devour], ids=["by records", "in one call"])
def test_a_job_that_fills_its_memory_fails_alone_and_says_so(
    session: Session, function: Callable[[int], int]
) -> None:
    result = session.result(session.submit(function))
    assert result.status is JobStatus.FAILED
    assert result.failure is not None
    assert "more than its share of" in result.failure.text
    assert "headrace.taskmanager.memory.reserve" in result.failure.text
    session.assert_undisturbed()


def test_a_job_that_fails_fails_alone(session: Session) -> None:
    result = session.result(session.submit(fail))
    assert result.status is JobStatus.FAILED
    session.assert_undisturbed()


def test_a_job_that_ends_its_process_fails_alone(session: Session) -> None:
    result = session.result(session.submit(leave))
    assert result.status is JobStatus.FAILED
    assert result.failure is not None
    assert f"os._exit(3) was called in leave ({__file__}:" in result.failure.text
    session.assert_undisturbed()


def test_a_job_in_an_endless_loop_holds_up_itself_alone(session: Session, tmp_path: Path) -> None:
    began = str(tmp_path / "began")

    def spin(value: int) -> int:
        open(began, "wb").close()
        while True:
            pass

    job_id = session.submit(spin)
    wait_until(lambda: os.path.exists(began), what="the loop")
    session.wait_for_progress()
    session.cancel(job_id)
    session.cancel(job_id, is_forced=True)
    assert session.result(job_id).status is JobStatus.CANCELED
    session.assert_undisturbed()


def test_what_a_job_leaves_in_its_process_reaches_no_other_job(
    session: Session, tmp_path: Path
) -> None:
    marks: list[str] = []
    for name in ("first", "second"):
        file = tmp_path / name
        job_id = session.submit(marking(file))
        wait_until(file.exists, what="the first record of the job")
        session.cancel(job_id)
        assert session.result(job_id).status is JobStatus.CANCELED
        marks.append(file.read_text())
        session.assert_undisturbed()
    (first, found_by_first), (second, found_by_second) = (mark.split() for mark in marks)
    assert first != second
    assert (found_by_first, found_by_second) == ("False", "False")


def test_functions_are_unpickled_in_the_task_manager_of_their_job_alone(
    session: Session, tmp_path: Path
) -> None:
    file = tmp_path / "processes"
    job_id = session.submit(Traced(file))
    wait_until(file.exists, what="the function is unpickled")
    wait_until(lambda: session.status(job_id) is JobStatus.RUNNING, what="the job runs")
    own = {one.pid for one in session.driver.live if one.name not in session.own}
    session.cancel(job_id)
    assert session.result(job_id).status is JobStatus.CANCELED
    # This process is the driver's.
    assert {int(line) for line in file.read_text().split()} == own
    assert os.getpid() not in own
    session.assert_undisturbed()
