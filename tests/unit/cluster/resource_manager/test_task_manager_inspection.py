"""Inspection of TaskManagers by the ResourceManager: facts of them, of those that ended too, and calls to them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.core.ids import ResourceId
from headrace.core.process.flame_graph import FlameGraphNode
from headrace.core.process.log_files import LogFile, LogFileNotFoundError, LogPiece
from headrace.core.process.stack_sampler import StackSamples
from headrace.core.process.thread_dump import ThreadInfo
from headrace.gateways.errors import StackSamplerBusyError, UnknownTaskManagerError
from headrace.gateways.resource_manager import SlotInfo
from headrace.rpc.errors import AskTimeoutError
from tests.unit.cluster.cluster_samples import JOB, OTHER_JOB, SLOT_PROFILE, vertex_id
from tests.unit.cluster.resource_manager.resource_manager_world import MEMORY, WORKER, World
from tests.unit.cluster.task_executor.task_executor_world import never

STRANGER = ResourceId("test-tm-99")
FILE = LogFile("taskmanager-test-tm-1.log", 10, 7)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(log_folder=tmp_path)
    world.declare(1)
    yield world
    world.close()


def answer(world: World, **answers: Any) -> None:
    world.task_manager.script.answers.update(answers)


def lose(world: World) -> None:
    world.driver.listener.worker_terminated(WORKER, "exit code 137")
    world.run_for(10)


def test_a_task_manager_is_described_with_host_resources_slots_and_last_heartbeat(
    world: World,
) -> None:
    world.register_with_slots()
    begin_ms = world.loop.clock.now_ms()
    world.run_for(25_000)
    info = world.ask(world.gateway.request_task_manager_details(WORKER))
    assert (info.host, info.data_port, info.pid) == ("worker", 1, 7)
    assert info.last_heartbeat_ms > begin_ms
    assert info.memory == MEMORY
    assert info.free_memory_bytes == MEMORY.limit_bytes - MEMORY.resident_bytes
    (slot,) = info.slots
    assert (slot.slot_id.slot_index, slot.job_id) == (0, JOB) and slot.allocation_id is not None
    (listed,) = world.ask(world.gateway.request_resource_overview()).task_managers
    assert listed == info


def test_a_free_slot_has_neither_job_nor_allocation(world: World) -> None:
    world.register_with_slots()
    world.declare(0)
    world.run_for(15_000)
    info = world.ask(world.gateway.request_task_manager_details(WORKER))
    assert info.slots == (SlotInfo(info.slots[0].slot_id, profile=SLOT_PROFILE),)
    assert info.total == info.free == SLOT_PROFILE
    assert info.free_slot_count == 1


def test_nobody_is_asked_about_a_stranger(world: World) -> None:
    gateway = world.gateway
    for question in (
        gateway.request_task_manager_details(STRANGER),
        gateway.request_task_manager_log_files(STRANGER),
        gateway.read_task_manager_log_file(STRANGER, "a.log", 0, 10),
        gateway.request_task_manager_thread_dump(STRANGER),
    ):
        with pytest.raises(UnknownTaskManagerError, match="test-tm-99"):
            world.ask(question)


def test_questions_are_passed_on_to_a_task_manager_that_lives(world: World) -> None:
    world.register_with_slots()
    dump, piece = (ThreadInfo("main", "it waits"),), LogPiece(2, 10, b"x")
    answer(world, request_log_files=(FILE,), read_log_file=piece, request_thread_dump=dump)
    gateway = world.gateway
    assert world.ask(gateway.request_task_manager_log_files(WORKER)) == (FILE,)
    assert world.ask(gateway.read_task_manager_log_file(WORKER, FILE.name, 2, 1)) == piece
    assert world.ask(gateway.request_task_manager_thread_dump(WORKER)) == dump
    assert world.task_manager.script.called("read_log_file") == [(FILE.name, 2, 1)]


def test_a_file_that_a_task_manager_does_not_have_is_not_looked_for_elsewhere(
    world: World, tmp_path: Path
) -> None:
    world.register_with_slots()
    answer(world, read_log_file=LogFileNotFoundError(FILE.name))
    (tmp_path / FILE.name).write_text("of an earlier one")
    with pytest.raises(LogFileNotFoundError):
        world.ask(world.gateway.read_task_manager_log_file(WORKER, FILE.name, 0, 10))


def test_files_of_a_task_manager_that_is_gone_are_read_from_the_driver_s_folder(
    world: World, tmp_path: Path
) -> None:
    world.register_with_slots()
    lose(world)
    (tmp_path / FILE.name).write_text("its last words")
    (tmp_path / "taskmanager-test-tm-12.log").write_text("of another one")
    gateway = world.gateway
    (listed,) = world.ask(gateway.request_task_manager_log_files(WORKER))
    assert (listed.name, listed.size_bytes) == (FILE.name, 14)
    piece = world.ask(gateway.read_task_manager_log_file(WORKER, FILE.name, -5, 100))
    assert piece.content == b"words"
    for name in ("taskmanager-test-tm-12.log", "../secret"):
        with pytest.raises(LogFileNotFoundError):
            world.ask(gateway.read_task_manager_log_file(WORKER, name, 0, 100))
    for question in (
        gateway.request_task_manager_details(WORKER),
        gateway.request_task_manager_thread_dump(WORKER),
    ):
        with pytest.raises(UnknownTaskManagerError):
            world.ask(question)


def test_files_of_a_task_manager_that_hangs_are_read_from_the_driver_s_folder(
    world: World, tmp_path: Path
) -> None:
    world.register_with_slots()
    answer(world, request_log_files=lambda: never(), read_log_file=lambda *_: never())
    (tmp_path / FILE.name).write_text("before it hung")
    (listed,) = world.ask(world.gateway.request_task_manager_log_files(WORKER))
    assert listed.size_bytes == 14
    piece = world.ask(world.gateway.read_task_manager_log_file(WORKER, FILE.name, 0, 100))
    assert piece.content == b"before it hung"


def test_without_a_folder_a_task_manager_that_is_gone_has_no_files_and_one_that_hangs_is_an_error() -> (
    None
):
    world = World()
    world.declare(1)
    world.register_with_slots()
    answer(world, request_log_files=lambda: never())
    with pytest.raises(AskTimeoutError):
        world.ask(world.gateway.request_task_manager_log_files(WORKER))
    lose(world)
    assert world.ask(world.gateway.request_task_manager_log_files(WORKER)) == ()
    with pytest.raises(LogFileNotFoundError):
        world.ask(world.gateway.read_task_manager_log_file(WORKER, FILE.name, 0, 1))
    world.close()


def test_a_task_manager_that_is_gone_is_listed_no_more_and_its_job_is_told_the_cause(
    world: World,
) -> None:
    world.register_with_slots()
    lose(world)
    assert world.ask(world.gateway.request_resource_overview()).task_managers == ()
    (told,) = world.job_master.script.called("disconnect_task_manager")
    assert told == (WORKER, "exit code 137")


def test_files_of_a_task_manager_that_was_stopped_for_being_idle_stay_too(
    world: World, tmp_path: Path
) -> None:
    world.register_with_slots()
    (tmp_path / FILE.name).write_text("its last words")
    world.declare(0)
    world.run_for(45_000)
    assert world.task_manager.script.called("shut_down") == [("idle: no job has a slot here",)]
    (listed,) = world.ask(world.gateway.request_task_manager_log_files(WORKER))
    assert listed.name == FILE.name


def test_those_that_ended_first_are_forgotten_with_their_files(tmp_path: Path) -> None:
    world = World({"headrace.resourcemanager.ended-task-managers": "1"}, tmp_path)
    world.declare(2)
    names = (WORKER, ResourceId("test-tm-2"))
    for name in names:
        (tmp_path / f"taskmanager-{name}.log").write_text("x")
        (tmp_path / f"taskmanager-{name}.out.1").write_text("x")
        world.register(name=name)
    for name in names:
        world.driver.listener.worker_terminated(name, "gone")
        world.run_for(10)
    assert {path.name for path in tmp_path.iterdir()} == {
        "taskmanager-test-tm-2.log",
        "taskmanager-test-tm-2.out.1",
    }
    with pytest.raises(UnknownTaskManagerError):
        world.ask(world.gateway.request_task_manager_log_files(WORKER))
    world.close()


SAMPLES = StackSamples(
    1,
    2,
    3,
    (0,),
    FlameGraphNode("root", 3, (FlameGraphNode("m.f:1", 3),)),
    FlameGraphNode("root", 0),
)


def ask_samples(world: World, job: Any = JOB) -> StackSamples:
    question = world.gateway.request_vertex_stack_samples(job, vertex_id(1), None, 3, 50, 100)
    return world.ask(question)


def test_task_managers_with_slots_of_the_job_are_asked_for_stack_samples(world: World) -> None:
    world.register_with_slots()
    answer(world, request_stack_samples=SAMPLES)
    assert ask_samples(world) == SAMPLES
    arguments = (JOB, vertex_id(1), None, 3, 50, 100)
    assert world.task_manager.script.called("request_stack_samples") == [arguments]
    assert ask_samples(world, OTHER_JOB).subtask_indexes == ()
    assert len(world.task_manager.script.called("request_stack_samples")) == 1


def test_a_task_manager_that_does_not_answer_is_left_out_of_stack_samples(world: World) -> None:
    world.register_with_slots()
    answer(world, request_stack_samples=lambda *_: never())
    samples = ask_samples(world)
    assert (samples.sample_count, samples.full.value) == (0, 0)


def test_that_all_are_busy_is_told(world: World) -> None:
    world.register_with_slots()
    answer(world, request_stack_samples=StackSamplerBusyError("test-tm-1", 4))
    with pytest.raises(StackSamplerBusyError):
        ask_samples(world)
