"""The blob server: uploads, reads, what it refuses, and what it deletes when."""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.blob import blob_files
from headrace.cluster.blob.blob_client import upload
from headrace.cluster.blob.blob_files import BlobLedger
from headrace.cluster.blob.blob_server import BlobServer
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import BlobKey, JobId
from headrace.core.randomness import SeededRandom
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.errors import (
    BlobCorruptedError,
    BlobNotFoundError,
    BlobStorageError,
    BlobTransferError,
)
from headrace.rpc.loopback import LoopbackMessage, LoopbackNetwork, MessageKind
from testkit.scripted_gateways import end_processes
from testkit.simulation.virtual_loop import VirtualLoop
from tests.unit.cluster.blob.blob_loop import run_at_once
from tests.unit.cluster.cluster_samples import JOB, OTHER_JOB

CONTENT = bytes(range(256)) * 40
KEY = BlobKey.of(CONTENT)
SETTINGS = {
    "headrace.blob.storage-size-max": "100000",
    "blob.service.cleanup.interval": "60 s",
    "blob.fetch.retries": "2",
    "pekko.ask.timeout": "1 s",
}


class LosingReplies:
    """Loses so many replies of a method."""

    def __init__(self) -> None:
        self.left = 0

    def decide(self, message: LoopbackMessage) -> tuple[float, ...]:
        if message.kind is MessageKind.REPLY and message.method == "put_chunk" and self.left:
            self.left -= 1
            return ()
        return (0.0,)


class World:
    """A server in one process and a client in another."""

    def __init__(self, scratch: Path) -> None:
        self.loop = VirtualLoop(ManualClock())
        self.policy = LosingReplies()
        self.network = LoopbackNetwork(
            self.loop.clock,
            SeededRandom(1),
            loop=self.loop,
            settings=Settings(SETTINGS),
            policy=self.policy,
        )
        self.server = BlobServer(self.network.create_service("master"), run_at_once, scratch)
        self.server.start()
        client = self.network.create_service("client")
        self.gateway = client.gateway(self.server.address, BlobServerGateway)

    def ask(self, coroutine: Any) -> Any:
        return self.loop.run_until(coroutine)

    def put(self, content: bytes = CONTENT, job_id: JobId = JOB) -> BlobKey:
        key = BlobKey.of(content)
        self.ask(upload(self.gateway, job_id, key, content, chunk_size_bytes=1_000, retries=2))
        return key

    def get(self, key: BlobKey = KEY, job_id: JobId = JOB) -> bytes:
        content = b""
        while chunk := self.ask(self.gateway.get_chunk(job_id, key, len(content), 999)):
            content += chunk
        return content

    def files(self) -> list[Path]:
        directory = self.server.directory
        return [] if directory is None else [p for p in directory.rglob("*") if p.is_file()]

    def close(self) -> None:
        end_processes(self.network, self.loop)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def test_a_blob_comes_back_as_it_was(world: World) -> None:
    world.put()
    assert world.get() == CONTENT
    assert [path.name for path in world.files()] == [KEY.digest.hex()]


def test_the_directory_is_for_the_owner_alone(world: World) -> None:
    world.put()
    assert world.server.directory is not None
    assert world.server.directory.stat().st_mode & 0o077 == 0


def test_a_blob_that_is_there_is_not_written_again(world: World) -> None:
    world.put()
    assert world.ask(world.gateway.put_chunk(JOB, KEY, 0, CONTENT[:1_000])) == len(CONTENT)


def test_an_upload_goes_on_where_lost_answers_left_it(world: World) -> None:
    world.policy.left = 2
    world.put()
    assert world.get() == CONTENT


def test_an_upload_gives_up_after_its_retries(world: World) -> None:
    world.policy.left = 3
    with pytest.raises(
        BlobTransferError,
        match=r"the transfer was abandoned after 3 failures \('blob.fetch.retries",
    ):
        world.put()


def test_a_chunk_that_leaves_a_gap_changes_nothing(world: World) -> None:
    assert world.ask(world.gateway.put_chunk(JOB, KEY, 0, CONTENT[:10])) == 10
    assert world.ask(world.gateway.put_chunk(JOB, KEY, 20, CONTENT[20:30])) == 10


def test_content_that_is_not_what_the_key_says_is_deleted(world: World) -> None:
    with pytest.raises(BlobCorruptedError, match="does not match its hash"):
        world.ask(world.gateway.put_chunk(JOB, KEY, 0, b"x" * len(CONTENT)))
    assert world.files() == []
    world.put()
    assert world.get() == CONTENT, "the upload may begin anew"


def test_more_than_the_key_says_is_refused(world: World) -> None:
    with pytest.raises(BlobCorruptedError):
        world.ask(world.gateway.put_chunk(JOB, KEY, 0, CONTENT + b"x"))


def test_an_incomplete_blob_cannot_be_read_nor_a_job_begin_with_it(world: World) -> None:
    world.ask(world.gateway.put_chunk(JOB, KEY, 0, CONTENT[:10]))
    with pytest.raises(BlobNotFoundError):
        world.get()
    with pytest.raises(BlobNotFoundError, match="submit the job again"):
        world.ask(world.gateway.retain_job(JOB, (KEY,)))


def test_blobs_end_with_their_job_and_with_no_other(world: World) -> None:
    world.put()
    world.put(job_id=OTHER_JOB)
    world.ask(world.gateway.release_job(JOB))
    world.ask(world.gateway.release_job(JOB))
    with pytest.raises(BlobNotFoundError, match="the job is over"):
        world.get()
    assert world.get(job_id=OTHER_JOB) == CONTENT
    assert len(world.files()) == 1


def test_blobs_of_a_job_that_was_never_submitted_are_deleted_after_a_while(world: World) -> None:
    world.put()
    world.put(job_id=OTHER_JOB)
    world.ask(world.gateway.retain_job(OTHER_JOB, (KEY,)))
    world.loop.run_for(200_000)
    assert world.get(job_id=OTHER_JOB) == CONTENT
    assert len(world.files()) == 1


def test_what_does_not_fit_is_refused_with_the_option(world: World) -> None:
    with pytest.raises(BlobStorageError, match=r"headrace\.blob\.storage-size-max"):
        world.put(b"x" * 100_001)


def test_a_full_disk_is_told_with_what_to_do_and_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullFile:
        def __enter__(self) -> "FullFile":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def seek(self, offset: int) -> None:
            pass

        def write(self, chunk: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(blob_files.os, "fdopen", lambda *_: FullFile())
    with pytest.raises(BlobStorageError, match=r"the disk is full .*'blob.storage.directory'"):
        world.put()
    assert world.files() == []


def test_a_file_that_somebody_removed_is_told(world: World) -> None:
    world.put()
    (file,) = world.files()
    file.unlink()
    with pytest.raises(BlobNotFoundError, match="removed by another process"):
        world.get()


def test_the_directory_goes_with_the_server(world: World, tmp_path: Path) -> None:
    world.put()
    world.loop.run_until(world.server.close())
    assert list(tmp_path.iterdir()) == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["expect", "complete", "forget", "release", "retain"]),
            st.integers(0, 1),
            st.integers(0, 2),
        ),
        max_size=30,
    )
)
def test_the_ledger_counts_every_blob_once_and_never_below_zero(
    steps: list[tuple[str, int, int]],
) -> None:
    ledger = BlobLedger(10_000)
    keys = [BlobKey(bytes([number]) * 32, 100 * (number + 1)) for number in range(3)]
    known: dict[tuple[JobId, BlobKey], bool] = {}
    for step, job_number, key_number in steps:
        job, key = (JOB, OTHER_JOB)[job_number], keys[key_number]
        match step:
            case "expect":
                ledger.expect(job, key, 0)
                known.setdefault((job, key), False)
            case "complete" if (job, key) in known:
                ledger.arrived(job, key, key.size_bytes)
                ledger.completed(job, key)
                known[job, key] = True
            case "forget":
                ledger.forget(job, key)
                known.pop((job, key), None)
            case "release":
                ledger.release(job)
                known = {each: done for each, done in known.items() if each[0] != job}
            case "retain" if known.get((job, key)):
                ledger.retain(job, (key,), 0)
            case _:
                pass
        assert ledger.size_bytes == sum(each.size_bytes for _, each in known)
        assert all(ledger.is_complete(*each) is done for each, done in known.items())
