"""A TaskManager and a task whose payloads are a blob."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headrace.core.ids import BlobKey
from headrace.core.lifecycle import ExecutionState
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.errors import BlobNotFoundError
from headrace.gateways.task_executor import TaskDeploymentDescriptor
from headrace.graph.job_graph import VertexPayloads
from testkit.scripted_gateways import ScriptedEndpoint, ScriptedTask, start_scripted
from tests.unit.cluster.cluster_samples import JOB, allocation, attempt, vertex
from tests.unit.cluster.task_executor.task_executor_world import JM_ID, World

PAYLOADS = VertexPayloads((b"function",), (b"types",), ())
BLOB = PAYLOADS.encode()
KEY = BlobKey.of(BLOB)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    world = World()
    world.request_slot()
    yield world
    world.close()


def start_blobs(world: World, content: bytes | Exception) -> ScriptedEndpoint:
    def chunk(job_id: object, key: object, offset: int, size: int) -> bytes:
        if isinstance(content, Exception):
            raise content
        return content[offset : offset + size]

    master = world.network.services["master"]
    return start_scripted(master, "blobs", BlobServerGateway, get_chunk=chunk)


def submit(world: World, index: int = 0) -> ScriptedTask:
    big = msgspec.structs.replace(vertex(1, 2), payloads=KEY)
    descriptor = TaskDeploymentDescriptor(attempt(index), allocation(1), "a job", {}, big, (), ())
    world.ask(world.gateway.submit_task(descriptor, JM_ID))
    return world.factory.tasks[attempt(index)]


def test_two_subtasks_are_brought_one_fetch(world: World) -> None:
    blobs = start_blobs(world, BLOB)
    first, second = submit(world, 0), submit(world, 1)
    world.run_for(1_000)
    assert first.payloads == second.payloads == PAYLOADS
    assert len(blobs.script.called("get_chunk")) == 1


def test_a_blob_that_is_not_there_fails_the_task_with_job_vertex_size_and_reason(
    world: World,
) -> None:
    start_blobs(world, BlobNotFoundError(str(JOB), str(KEY), "the job is over"))
    task = submit(world)
    world.run_for(1_000)
    assert task.state is ExecutionState.FAILED
    (*_, (report,)) = world.job_master.script.called("update_task_execution_state")
    assert report.error.class_name == "BlobTransferError"
    assert f"job 'a job' ({JOB}): the functions and collections of 'vertex 1'" in report.error.text
    assert "could not be fetched from headrace.loopback://master/rpc/blobs" in report.error.text
    assert "the job is over" in report.error.text


def test_a_blob_server_that_is_gone_fails_the_task_after_its_retries(world: World) -> None:
    task = submit(world)
    world.run_for(60_000)
    assert task.state is ExecutionState.FAILED
    (*_, (report,)) = world.job_master.script.called("update_task_execution_state")
    assert "the transfer was abandoned after 6 failures ('blob.fetch.retries')" in report.error.text


def test_a_blob_that_is_no_payload_fails_the_task(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    garbage = b"\xc1 no message"
    monkeypatch.setattr(f"{__name__}.KEY", BlobKey.of(garbage))
    start_blobs(world, garbage)
    task = submit(world)
    world.run_for(1_000)
    assert task.state is ExecutionState.FAILED
