"""The blob cache of a TaskManager: one fetch for many, other tries, and what it keeps for how long."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.cluster.blob.blob_cache import BlobCache
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import BlobKey
from headrace.core.randomness import SeededRandom
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.errors import BlobNotFoundError, BlobTransferError
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.loopback import LoopbackNetwork
from testkit.scripted_gateways import end_processes, start_scripted
from testkit.simulation.virtual_loop import VirtualLoop
from tests.unit.cluster.blob.blob_loop import run_at_once
from tests.unit.cluster.cluster_samples import JOB

CONTENT = b"0123456789" * 1_000
KEY = BlobKey.of(CONTENT)
SETTINGS = {
    "blob.service.cleanup.interval": "60 s",
    "blob.fetch.retries": "2",
    "pekko.ask.timeout": "1 s",
    "pekko.framesize": "8000",
}


class World:
    """A TaskManager's endpoint with a cache, and a server that answers as the test says."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.loop = VirtualLoop(ManualClock())
        self.network = LoopbackNetwork(
            self.loop.clock, SeededRandom(1), loop=self.loop, settings=Settings(SETTINGS)
        )
        self.content = CONTENT
        self.answers: list[Any] = []
        self.server = start_scripted(
            self.network.create_service("master"),
            "blobs",
            BlobServerGateway,
            get_chunk=self._chunk,
        )
        self.endpoint = RpcEndpoint(self.network.create_service("worker"), "tm")
        self.endpoint.start()
        self.cache = BlobCache(self.endpoint, run_at_once, scratch)
        self.cache.retain_job(JOB)

    def _chunk(self, job_id: Any, key: BlobKey, offset: int, size_bytes_max: int) -> Any:
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            if answer is not None:
                return answer
        return self.content[offset : offset + size_bytes_max]

    def open(self) -> bytes:
        return bytes(self.loop.run_until(self.cache.open(JOB, KEY, self.server.address), 600_000))

    @property
    def first_chunks(self) -> int:
        calls = self.server.script.called("get_chunk")
        return sum(offset == 0 for _, _, offset, _ in calls)

    def files(self) -> list[Path]:
        return [path for path in self.scratch.rglob("*") if path.is_file()]

    def close(self) -> None:
        end_processes(self.network, self.loop)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def test_many_who_ask_at_once_share_one_fetch(world: World) -> None:
    async def ask_all() -> list[memoryview]:
        return await asyncio.gather(
            *(world.cache.open(JOB, KEY, world.server.address) for _ in range(5))
        )

    views = world.loop.run_until(ask_all())
    assert all(view == CONTENT for view in views)
    assert world.open() == CONTENT
    assert world.first_chunks == 1


def test_whoever_stops_waiting_does_not_stop_the_others(world: World) -> None:
    async def ask_two() -> memoryview:
        first = asyncio.ensure_future(world.cache.open(JOB, KEY, world.server.address))
        second = asyncio.ensure_future(world.cache.open(JOB, KEY, world.server.address))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert world.loop.run_until(ask_two()) == CONTENT
    assert world.first_chunks == 1


def test_a_chunk_without_an_answer_is_asked_for_again(world: World) -> None:
    async def never() -> bytes:
        await asyncio.sleep(10**6)
        return b""

    world.answers = [None, never()]
    assert world.open() == CONTENT
    assert world.first_chunks == 1, "what had come stays"


def test_content_that_does_not_match_is_fetched_again(world: World) -> None:
    world.answers = [b"x" * 4_000]
    assert world.open() == CONTENT
    assert world.first_chunks == 2


def test_content_that_never_matches_is_an_error_and_leaves_no_file(world: World) -> None:
    world.content = b"x" * len(CONTENT)
    with pytest.raises(
        BlobTransferError, match=r"does not match its hash; the transfer was abandoned after 3"
    ):
        world.open()
    assert world.files() == []


def test_a_blob_that_the_server_does_not_have_is_not_asked_for_again(world: World) -> None:
    world.answers = [BlobNotFoundError("job", "key", "the job is over")]
    with pytest.raises(BlobNotFoundError, match="the job is over"):
        world.open()
    assert world.first_chunks == 1
    assert world.open() == CONTENT, "the next attempt tries again"


def test_a_file_that_was_tidied_away_is_fetched_again(world: World) -> None:
    world.open()
    (file,) = world.files()
    file.unlink()
    assert world.open() == CONTENT
    assert world.first_chunks == 2


def test_a_jobs_blobs_stay_for_a_while_after_its_end(world: World) -> None:
    world.open()
    world.cache.release_job(JOB)
    world.loop.run_for(59_000)
    assert len(world.files()) == 1
    world.loop.run_for(2_000)
    assert world.files() == []


def test_a_job_that_comes_back_in_time_keeps_its_blobs(world: World) -> None:
    world.open()
    world.cache.release_job(JOB)
    world.loop.run_for(30_000)
    world.cache.retain_job(JOB)
    world.loop.run_for(120_000)
    assert world.open() == CONTENT
    assert world.first_chunks == 1


def test_closing_removes_the_directory_and_what_was_opened_stays_readable(world: World) -> None:
    view = world.loop.run_until(world.cache.open(JOB, KEY, world.server.address))
    world.loop.run_until(world.cache.close())
    assert list(world.scratch.iterdir()) == []
    assert view == CONTENT
