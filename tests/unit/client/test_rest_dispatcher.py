"""RestDispatcher has over REST what a Dispatcher in the same process would have, errors with their classes too."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.client.rest_dispatcher import RestDispatcher
from headrace.core.barriers import SavepointFormatType
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, HeadraceError
from headrace.core.ids import BlobKey, JobId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.errors import (
    BlobCorruptedError,
    BlobNotFoundError,
    CheckpointFailedError,
    DuplicateJobSubmissionError,
    JobAlreadyEndedError,
    NotLeadingError,
    UnknownJobError,
)
from headrace.gateways.messages import Acknowledge
from headrace.graph.job_graph import JobGraph, OffloadedGraph
from headrace.rest.client import RestClient
from headrace.rest.client_errors import RestRefusedError
from testkit.simulation.virtual_loop import VirtualLoop
from tests.unit.rest.golden_shapes import assert_golden
from tests.unit.rest.sample_cluster import (
    CHECKPOINT_CONFIGURATION,
    CHECKPOINT_DETAILS,
    FAILED_JOB,
    FAILURE,
    PLAN,
    RUNNING_JOB,
    STATISTICS,
    UNKNOWN_JOB,
    details,
)
from tests.unit.rest.served_cluster import ServedCluster, served_cluster

NEW_JOB = JobId(b"n" * 16)
KNOWN = DuplicateJobSubmissionError(str(NEW_JOB), "RUNNING")
CANONICAL = SavepointFormatType.CANONICAL


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with (
        pytest.MonkeyPatch.context() as patch,
        served_cluster(
            tmp_path_factory.mktemp("home"), patch, {"web.submit.enable": "true"}
        ) as served,
    ):
        yield served


def ask(cluster: ServedCluster, call: Callable[[RestDispatcher], Coroutine[Any, Any, Any]]) -> Any:
    """Return the answer to a call, made on an event loop of its own."""

    async def asked() -> Any:
        return await call(RestDispatcher(RestClient(cluster.server.address, cluster.token)))

    return asyncio.run(asked())


def graph_of(job_id: JobId) -> JobGraph:
    return JobGraph(job_id, "brought", (), (), {})


def test_answers_are_the_messages_of_the_dispatcher(cluster: ServedCluster) -> None:
    job = RUNNING_JOB
    assert ask(cluster, lambda d: d.request_job_details(job)) == details(job, JobStatus.RUNNING)
    assert ask(cluster, lambda d: d.request_job_plan(job)) == PLAN
    assert ask(cluster, lambda d: d.request_accumulators(job)) == {"Count.cities": 7.0}
    # Some figures are NaN, which equals nothing.
    assert repr(ask(cluster, lambda d: d.request_checkpoint_statistics(job))) == repr(STATISTICS)
    assert ask(cluster, lambda d: d.request_checkpoint_details(job, 3)) == CHECKPOINT_DETAILS
    assert ask(cluster, lambda d: d.request_checkpoint_details(job, 4)) is None
    found = ask(cluster, lambda d: d.request_checkpoint_configuration(job))
    assert found == CHECKPOINT_CONFIGURATION
    assert ask(cluster, lambda d: d.request_job_configuration(job)).parallelism == 2
    listed = ask(cluster, lambda d: d.list_jobs())
    assert [each.job_id for each in listed] == [RUNNING_JOB, FAILED_JOB]


def test_the_end_of_a_job_is_told_with_its_failure(cluster: ServedCluster) -> None:
    assert ask(cluster, lambda d: d.await_job_end(FAILED_JOB, 60_000)) is JobStatus.FAILED
    assert ask(cluster, lambda d: d.await_job_end(RUNNING_JOB, 0)) is JobStatus.RUNNING
    assert ask(cluster, lambda d: d.request_job_result(FAILED_JOB)).failure == FAILURE


def test_a_client_that_waits_for_long_asks_once_a_second() -> None:
    clock = ManualClock(0)
    loop, asked_ms = VirtualLoop(clock), list[float]()

    class Rest:
        def exchange(self, *_: object, **__: object) -> bytes:
            asked_ms.append(clock.monotonic_ms())
            return b'{"status": "RUNNING"}'

    async def run_here(_: str, call: Callable[[], bytes]) -> bytes:
        return call()

    async def wait() -> None:
        dispatcher = RestDispatcher(cast(RestClient, Rest()), cast(Any, run_here))
        for _ in range(10):
            await dispatcher.await_job_end(RUNNING_JOB, 10_000)

    loop.run_until(wait())
    loop.close()
    assert asked_ms[1] <= 100
    late = [at_ms for at_ms in asked_ms if at_ms > 10_000]
    # A wait begins and ends with a question.
    assert len(late) <= 90 + 9


def test_savepoints_stops_and_checkpoints_are_waited_for(cluster: ServedCluster) -> None:
    place = "file:/savepoints/savepoint-000102-0123456789ab"
    assert (
        ask(cluster, lambda d: d.trigger_savepoint(RUNNING_JOB, "/savepoints", CANONICAL)) == place
    )
    assert (
        ask(cluster, lambda d: d.stop_with_savepoint(RUNNING_JOB, "/savepoints", True, CANONICAL))
        == place
    )
    assert cluster.dispatcher.savepoints[-1] == ("drain", "/savepoints")
    native = SavepointFormatType.NATIVE
    assert ask(cluster, lambda d: d.trigger_savepoint(RUNNING_JOB, "/savepoints", native)) == place
    stopped = ask(
        cluster, lambda d: d.stop_with_savepoint(RUNNING_JOB, "/savepoints", False, native)
    )
    assert stopped == place
    assert cluster.dispatcher.savepoint_formats[-4:] == [CANONICAL, CANONICAL, native, native]
    assert ask(cluster, lambda d: d.trigger_checkpoint(RUNNING_JOB, True)) == 4
    assert cluster.dispatcher.full_checkpoints[-1] is True


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda d: d.request_job_status(UNKNOWN_JOB), UnknownJobError),
        (lambda d: d.request_job_details(UNKNOWN_JOB), UnknownJobError),
        (lambda d: d.cancel_job(UNKNOWN_JOB), UnknownJobError),
        (lambda d: d.trigger_savepoint(UNKNOWN_JOB, "/savepoints", CANONICAL), UnknownJobError),
        (lambda d: d.cancel_job(FAILED_JOB), JobAlreadyEndedError),
        (lambda d: d.trigger_savepoint(RUNNING_JOB, "", CANONICAL), ConfigurationError),
        (lambda d: d.submit_job(graph_of(RUNNING_JOB)), DuplicateJobSubmissionError),
    ],
)
def test_errors_have_the_class_that_they_have_in_the_cluster(
    cluster: ServedCluster,
    call: Callable[[RestDispatcher], Coroutine[Any, Any, Any]],
    error: type[HeadraceError],
) -> None:
    with pytest.raises(error) as raised:
        ask(cluster, call)
    assert type(raised.value) is error


def test_the_facts_of_a_failed_savepoint_arrive(cluster: ServedCluster) -> None:
    cluster.dispatcher.failure = CheckpointFailedError("the disk is full", repeats=False)
    try:
        with pytest.raises(CheckpointFailedError, match="the disk is full") as raised:
            ask(cluster, lambda d: d.trigger_savepoint(RUNNING_JOB, "/savepoints", CANONICAL))
    finally:
        cluster.dispatcher.failure = None
    assert raised.value.repeats is False


def test_a_job_is_brought_with_its_blobs_in_chunks(cluster: ServedCluster) -> None:
    content = bytes(range(256)) * 10_000
    job = OffloadedGraph(graph_of(NEW_JOB), {BlobKey.of(content): content})
    ask(cluster, lambda d: d.submit(job))
    assert cluster.blob_server.blobs[BlobKey.of(content)] == content
    assert len(cluster.blob_server.chunk_sizes) > 1
    assert cluster.dispatcher.submitted[-1] == job.graph


@pytest.mark.parametrize("knows_job", [True, False], ids=["taken", "refused"])
def test_a_job_whose_blobs_went_with_their_leader_is_brought_once_more(
    cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch, knows_job: bool
) -> None:
    content = b"of a leader that dies"
    key = BlobKey.of(content)
    missing = BlobNotFoundError(str(NEW_JOB), str(key), "it is not uploaded")
    answers: list[Exception] = [missing, *([KNOWN] if knows_job else [missing] * 5)]
    brought: list[bytes] = []

    async def answer(_: JobGraph) -> None:
        brought.append(cluster.blob_server.blobs.pop(key))
        raise answers[len(brought) - 1]

    monkeypatch.setattr(cluster.dispatcher, "submit_job", answer)
    job = OffloadedGraph(graph_of(NEW_JOB), {key: content})
    if knows_job:
        ask(cluster, lambda d: d.submit(job))
    else:
        with pytest.raises(BlobNotFoundError):
            ask(cluster, lambda d: d.submit(job))
    assert brought == [content] * len(answers)


@pytest.mark.parametrize(
    ("answers", "is_taken"),
    [
        ((NotLeadingError("it has lost the leadership"), KNOWN), True),
        ((TimeoutError("the storage is slow"), KNOWN), True),
        ((NotLeadingError("it has lost the leadership"), None), True),
        ((KNOWN,), False),
    ],
    ids=["stored-by-a-former-leader", "stored-late", "not-stored", "of-another-submission"],
)
def test_a_job_that_is_there_after_an_answer_with_503_is_the_one_that_was_brought(
    cluster: ServedCluster,
    monkeypatch: pytest.MonkeyPatch,
    answers: tuple[Exception | None, ...],
    is_taken: bool,
) -> None:
    left = list(answers)

    async def answer(_: JobGraph) -> Acknowledge:
        error = left.pop(0)
        if error is not None:
            raise error
        return Acknowledge()

    monkeypatch.setattr(cluster.dispatcher, "submit_job", answer)
    settings = Settings({"rest.retry.delay": "0 s"})
    rest = RestClient(cluster.server.address, cluster.token, settings=settings)

    async def submit() -> None:
        await RestDispatcher(rest).submit_job(graph_of(NEW_JOB))

    if is_taken:
        asyncio.run(submit())
    else:
        with pytest.raises(DuplicateJobSubmissionError):
            asyncio.run(submit())
    assert left == []


def test_the_answer_to_a_chunk_is_where_the_next_one_goes_on(cluster: ServedCluster) -> None:
    digest = BlobKey.of(b"in two chunks").digest.hex()
    path = f"/jobs/{NEW_JOB.hex()}/blobs/{digest}?size=13"
    first = cluster.ask("PUT", path, b"in two ")
    assert_golden("PUT /jobs/{jobid}/blobs/{digest}", first.json, first.status)
    assert first.json == {"received": 7}
    assert cluster.ask("PUT", f"{path}&offset=7", b"chunks").json == {"received": 13}


def test_a_blob_that_is_not_what_its_key_says_is_refused(cluster: ServedCluster) -> None:
    job = OffloadedGraph(graph_of(NEW_JOB), {BlobKey.of(b"other"): b"wrong"})
    with pytest.raises(HeadraceError, match="does not match its hash") as raised:
        ask(cluster, lambda d: d.submit(job))
    assert isinstance(raised.value.__cause__, BlobCorruptedError)


def test_a_chunk_that_is_too_long_is_refused(cluster: ServedCluster) -> None:
    path = f"/jobs/{NEW_JOB.hex()}/blobs/{'0' * 64}?size=9"
    found = cluster.ask("PUT", path, bytes((4 << 20) + 1))
    assert (found.status, "A chunk of a blob may have" in found.errors) == (400, True)


def test_bytes_that_are_no_job_are_refused(cluster: ServedCluster) -> None:
    rest = RestClient(cluster.server.address, cluster.token)
    with pytest.raises(RestRefusedError, match="the body is not a JobGraph") as refused:
        rest.exchange("POST", "/jobs", b"\x81\xa1x\x01")
    assert refused.value.status == 400


def test_a_cluster_of_one_program_takes_no_jobs_and_says_which_option_changes_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        served_cluster(tmp_path, monkeypatch) as cluster,
        pytest.raises(RestRefusedError, match=r"web\.submit\.enable") as refused,
    ):
        ask(cluster, lambda d: d.submit_job(graph_of(NEW_JOB)))
    assert refused.value.status == 403
    assert cluster.dispatcher.submitted == []


def test_other_clients_are_answered_with_flinks_json_still(cluster: ServedCluster) -> None:
    assert cluster.get(f"/jobs/{RUNNING_JOB.hex()}").json["jid"] == RUNNING_JOB.hex()
    found = cluster.ask("POST", "/jobs", {})
    assert (found.status, "cannot run a Java job graph" in found.errors) == (400, True)
    assert list(cluster.get(f"/jobs/{UNKNOWN_JOB.hex()}").json) == ["errors"]
