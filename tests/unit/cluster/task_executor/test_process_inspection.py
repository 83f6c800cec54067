"""Answers of a TaskManager about its process: log files, thread dumps and stack samples."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cluster.task_executor import process_inspection
from headrace.core.lifecycle import ExecutionState
from headrace.core.process.log_files import LogFileNotFoundError
from headrace.core.process.stack_sampler import StackSamples
from headrace.core.threads import own_thread_ids
from headrace.gateways.errors import StackSamplerBusyError
from tests.unit.cluster.cluster_samples import JOB, OTHER_JOB, vertex_id
from tests.unit.cluster.task_executor.task_executor_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(log_folder=tmp_path)
    world.request_slot()
    yield world
    world.close()


def test_a_task_manager_lists_and_reads_its_own_files_and_no_other_ones(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "taskmanager-tm-1.log").write_text("0123456789")
    (tmp_path / "taskmanager-tm-2.log").write_text("of another one")
    (tmp_path / "jobmanager.log").write_text("of the driver")
    (listed,) = world.ask(world.gateway.request_log_files())
    assert (listed.name, listed.size_bytes) == ("taskmanager-tm-1.log", 10)
    piece = world.ask(world.gateway.read_log_file("taskmanager-tm-1.log", 4, 3))
    assert (piece.offset, piece.size_bytes, piece.content) == (4, 10, b"456")
    for name in ("taskmanager-tm-2.log", "jobmanager.log", "../secret", "taskmanager-tm-1.out"):
        with pytest.raises(LogFileNotFoundError, match="list the files again"):
            world.ask(world.gateway.read_log_file(name, 0, 100))


def test_a_task_manager_that_writes_no_log_has_no_files() -> None:
    world = World()
    assert world.ask(world.gateway.request_log_files()) == ()
    with pytest.raises(LogFileNotFoundError):
        world.ask(world.gateway.read_log_file("taskmanager-tm-1.log", 0, 1))
    world.close()


def test_a_thread_dump_has_the_threads_of_the_process(world: World) -> None:
    go_on, names = threading.Event(), threading.Thread(target=lambda: go_on.wait(), name="it waits")
    names.start()
    dump = world.ask(world.gateway.request_thread_dump())
    go_on.set()
    names.join()
    assert "go_on.wait()" in next(info.text for info in dump if info.name == "it waits")


class WaitingTask:
    """A task's thread, which waits until the test is over."""

    def __init__(self) -> None:
        self._began, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._began.wait()

    def _run(self) -> None:
        self.ids = own_thread_ids()
        self._began.set()
        self._end.wait()

    def end(self) -> None:
        self._end.set()
        self._thread.join()


@pytest.fixture
def thread() -> Iterator[WaitingTask]:
    thread = WaitingTask()
    yield thread
    thread.end()


def sample(world: World, number: int = 1, subtask: int | None = None, job=JOB) -> StackSamples:
    return world.ask(
        world.gateway.request_stack_samples(job, vertex_id(number), subtask, 3, 1, 100)
    )


def test_stacks_are_sampled_of_running_subtasks_of_the_vertex(
    world: World, thread: WaitingTask
) -> None:
    world.submit(1).thread_ids = thread.ids
    samples = sample(world)
    assert (samples.subtask_indexes, samples.sample_count) == ((1,), 3)
    assert samples.full.value == 3
    assert sample(world, subtask=1).full.value == 3


def test_other_subtasks_vertices_and_jobs_are_not_sampled(
    world: World, thread: WaitingTask
) -> None:
    task = world.submit(1)
    assert sample(world).subtask_indexes == (), "it has no thread yet"
    task.thread_ids = thread.ids
    assert sample(world, subtask=0).subtask_indexes == ()
    assert sample(world, number=2).subtask_indexes == ()
    assert sample(world, job=OTHER_JOB).subtask_indexes == ()
    task.reach(ExecutionState.FINISHED)
    world.run_for(10)
    assert sample(world).subtask_indexes == ()


def test_a_task_manager_samples_a_few_vertices_at_a_time(
    world: World, thread: WaitingTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.submit(1).thread_ids = thread.ids
    monkeypatch.setattr(process_inspection, "_SAMPLING_COUNT_MAX", 0)
    with pytest.raises(
        StackSamplerBusyError, match="tm-1 already takes stack samples for 0 other requests"
    ):
        sample(world)
    assert sample(world, number=2).subtask_indexes == (), "which costs nothing"
    monkeypatch.setattr(process_inspection, "_SAMPLING_COUNT_MAX", 1)
    assert sample(world).full.value == sample(world).full.value == 3
