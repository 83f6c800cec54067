"""Leaders whose storage is an object store: a real S3 server that the tests start, and that stops to answer.

The server compares and writes in one step, behind a lock of the tests' own (`s3_server`).
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.checkpoint.storage.conditional_writes import S3ConditionalWrites
from headrace.checkpoint.storage.file_systems import (
    child_uri,
    creates_atomically,
    files_below,
    put_if_absent,
    read_all,
    remove_file,
    replace_own_hint,
)
from headrace.checkpoint.storage.metadata_key import MetadataKey
from headrace.cluster.high_availability.job_result_store import JobResultEntry, JobResultStore
from headrace.cluster.high_availability.leader_election_service import (
    LeaderElectionService,
    LeadershipLostError,
)
from headrace.cluster.high_availability.leader_files import LeaderFiles
from headrace.cluster.high_availability.lease import LeaderRecord, LeaseTerms
from headrace.core.clock import SystemClock
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import system_random
from headrace.gateways.dispatcher import JobResult
from testkit.waiting import wait_until
from tests.integration.high_availability.drivers import NumbersJob, Rivals
from tests.integration.programs.s3_server import S3Server
from tests.unit.cluster.high_availability.successive_leaders import SuccessiveLeaders

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

KEY = MetadataKey(b"k" * 32)
TERMS = LeaseTerms(lease_duration_ms=6_000, renew_deadline_ms=4_000, retry_period_ms=1_000)
WRITER_COUNT = 8


@pytest.fixture
def folder(object_store: S3Server, tmp_path: Path) -> str:
    return object_store.folder(tmp_path.name)


def leader_files(folder: str) -> LeaderFiles:
    return LeaderFiles(folder, "test", KEY, system_random())


def test_of_many_that_create_one_object_at_once_one_does(folder: str) -> None:
    assert creates_atomically(child_uri(folder, "x"))
    start = threading.Barrier(WRITER_COUNT)

    def create(number: int) -> list[bool]:
        start.wait()
        names = [child_uri(folder, f"epoch-{each}") for each in range(10)]
        return [put_if_absent(name, b"%d" % number, f"token-{number}") for name in names]

    with ThreadPoolExecutor(WRITER_COUNT) as pool:
        created = list(pool.map(create, range(WRITER_COUNT)))
    for each in range(10):
        winners = [number for number in range(WRITER_COUNT) if created[number][each]]
        assert len(winners) == 1
        assert bytes(read_all(child_uri(folder, f"epoch-{each}"))) == b"%d" % winners[0]
    assert len(files_below(folder)) == 10, "what the store was tried with is gone"


def test_a_creation_whose_answer_was_lost_counts_when_it_is_repeated(folder: str) -> None:
    uri = child_uri(folder, "x")
    assert put_if_absent(uri, b"1", "mine")
    assert put_if_absent(uri, b"1", "mine")
    assert not put_if_absent(uri, b"1", "another's")


def test_only_its_creator_replaces_an_object_and_only_while_it_is_there(folder: str) -> None:
    uri = child_uri(folder, "x")
    assert not replace_own_hint(uri, b"0", "mine")
    put_if_absent(uri, b"1", "mine")
    assert replace_own_hint(uri, b"2", "mine")
    assert replace_own_hint(uri, b"3", "mine")
    assert not replace_own_hint(uri, b"4", "another's")
    assert bytes(read_all(uri)) == b"3"
    remove_file(uri)
    assert not replace_own_hint(uri, b"5", "mine")
    assert files_below(folder) == []


def test_a_replacement_is_refused_over_what_came_after_its_look(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = child_uri(folder, "x")
    put_if_absent(uri, b"1", "mine")
    looks: list[str | None] = []
    look = S3ConditionalWrites._tag_of  # pyright: ignore[reportPrivateUsage]

    def look_then_sleep(self: S3ConditionalWrites, path: str, token: str) -> str | None:
        looks.append(look(self, path, token))
        if len(looks) == 1:
            remove_file(uri)
            put_if_absent(uri, b"successor", "another's")
        return looks[-1]

    monkeypatch.setattr(S3ConditionalWrites, "_tag_of", look_then_sleep)
    assert not replace_own_hint(uri, b"late", "mine")
    assert looks[-1] is None
    assert bytes(read_all(uri)) == b"successor"


def test_a_leader_whose_record_is_not_its_own_any_more_cannot_renew_it(folder: str) -> None:
    first, second = leader_files(folder), leader_files(folder)
    assert first.take(LeaderRecord(1, "first"))
    assert not second.take(LeaderRecord(1, "second"))
    first.renew(LeaderRecord(1, "first", renewals=1))
    assert second.newest() == LeaderRecord(1, "first", renewals=1)
    with pytest.raises(LeadershipLostError, match="no longer its record"):
        second.renew(LeaderRecord(1, "second"))
    for epoch in (2, 3):
        assert second.take(LeaderRecord(epoch, "second"))
    with pytest.raises(LeadershipLostError, match="no longer its record"):
        first.renew(LeaderRecord(1, "first", renewals=2))
    assert second.newest_epoch() == 3


def test_of_two_first_results_of_one_job_the_first_stays(folder: str) -> None:
    def store() -> JobResultStore:
        return JobResultStore(folder, KEY, system_random(), deletes_clean=True)

    job_id = JobId.generate(system_random())
    ends = [
        JobResultEntry(JobResult(job_id, "job", status, 5, {}))
        for status in (JobStatus.FINISHED, JobStatus.CANCELED)
    ]
    for end in ends:
        assert store().create_dirty(end, 1)
    assert store().recover().dirty == {job_id: ends[0]}
    store().mark_clean(ends[0])
    assert store().recover().dirty == {}


def test_a_leader_that_looked_in_time_and_writes_late_does_not_end_a_job_in_the_store(
    folder: str,
) -> None:
    late, next_one = (
        JobResultStore(folder, KEY, system_random(), deletes_clean=True) for _ in range(2)
    )
    job_id = JobId.generate(system_random())
    failed, finished = (
        JobResultEntry(JobResult(job_id, "job", status, 5, {}))
        for status in (JobStatus.FAILED, JobStatus.FINISHED)
    )
    # Between the look of the one and its write, the other becomes its successor and goes on with the job.
    assert next_one.recover().dirty == {}
    assert next_one.shut_out(job_id, {1}) is None
    assert not late.create_dirty(failed, 1)
    assert next_one.recover().dirty == {}
    assert next_one.create_dirty(finished, 2)
    assert next_one.recover().dirty == {job_id: finished}
    next_one.mark_clean(finished)
    assert files_below(folder) == []


@pytest.mark.slow
def test_jobs_leave_no_place_of_a_leader_in_the_store(folder: str, tmp_path: Path) -> None:
    leaders = SuccessiveLeaders(folder, tmp_path)
    counts: list[int] = []
    for _ in range(5):
        leaders.lead(12)
        counts.append(len(leaders.entries()))
    assert leaders.taken_count == 60
    assert counts[-1] <= 2 * counts[1], "what is there grows with the jobs that there were"
    leaders.end_all()
    assert (leaders.entries(), leaders.stored()) == ([], [])
    assert len(leaders.terms()) <= 2


def test_a_leader_whose_store_answers_nobody_gives_up_in_time_and_leads_again(
    folder: str, object_store: S3Server
) -> None:
    election = LeaderElectionService(leader_files(folder), TERMS, SystemClock(), "test", "only")
    election.await_leadership()
    term = election.leadership
    assert term is not None
    try:
        with object_store.away():
            away_s = time.monotonic()
            wait_until(lambda: not is_valid(election), 20, "it gives up")
            assert 2 < time.monotonic() - away_s < 6
        wait_until(lambda: term.is_lost, 60, "its thread goes on")
        election.contend_again()
        wait_until(lambda: is_valid(election), 60, "it leads again")
        assert election.epoch == 2
    finally:
        election.close()


def is_valid(election: LeaderElectionService) -> bool:
    try:
        election.validate()
    except LeadershipLostError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("pair", ["s3"], indirect=True)
def test_a_job_goes_on_when_its_store_has_been_away_for_longer_than_a_lease(
    pair: Rivals, object_store: S3Server
) -> None:
    job = NumbersJob(pair.folder, count=6_000)
    first = pair.start("first")
    first.wait_for("leads")
    first.say("submit", str(job.file))
    first.wait_for("submitted")
    job.await_begin()
    with object_store.away():
        first.await_log("was not renewed within 4 s")
    before = sum(job.output().values())
    wait_until(lambda: sum(job.output().values()) > before, 120, "output of the next term")
    first.say("result", str(job.job_id))
    assert first.wait_for("result")["status"] == "FINISHED"
    assert "(epoch 2)" in first.log
    assert job.output() == job.expected
    pair.assert_forgotten(job)
