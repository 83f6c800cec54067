"""Memory of the Dispatcher of jobs that have ended, and its limits."""

from headrace.cluster.dispatcher.job_archive import ArchiveLimits, JobArchive
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from tests.unit.cluster.dispatcher.ended_jobs import checkpoint_details, collected, ended

IDS = [JobId(bytes([number]) * 16) for number in range(4)]
HOUR_MS = 3_600_000


def archive(
    clock: ManualClock | None = None, *, capacity: int = 1000, size_bytes: int = 1 << 20
) -> JobArchive:
    return JobArchive(ArchiveLimits(capacity, size_bytes, HOUR_MS), clock or ManualClock())


def known(jobs: JobArchive) -> list[JobId]:
    return [each.job.details.job_id for each in jobs.jobs()]


def test_the_oldest_job_beyond_the_capacity_is_forgotten() -> None:
    jobs = archive(capacity=2)
    for job_id in IDS[:3]:
        jobs.add(ended(job_id))
    assert jobs.find(IDS[0]) is None
    assert known(jobs) == IDS[1:3]


def test_the_oldest_jobs_beyond_the_size_are_forgotten() -> None:
    jobs = archive(size_bytes=20_000)
    jobs.add(ended(IDS[0]))
    jobs.add(ended(IDS[1], collected(IDS[0], 12_000)))
    assert known(jobs) == IDS[:2]
    jobs.add(ended(IDS[2], collected(IDS[0], 12_000)))
    assert known(jobs) == [IDS[2]]


def test_what_is_told_of_checkpoints_takes_room_too() -> None:
    checkpoints = tuple(checkpoint_details(number, subtask_count=20) for number in range(10))
    jobs = archive(size_bytes=20_000)
    jobs.add(ended(IDS[0]))
    jobs.add(ended(IDS[1], checkpoints=checkpoints))
    assert known(jobs) == [IDS[1]]


def test_a_checkpoint_of_an_ended_job_is_found_by_its_id() -> None:
    remembered = (checkpoint_details(7), checkpoint_details(8))
    job = ended(IDS[0], checkpoints=remembered).job
    assert job.checkpoint(8) == remembered[1]
    assert job.checkpoint(9) is None


def test_the_last_job_is_remembered_however_large_it_is() -> None:
    jobs = archive(size_bytes=10)
    jobs.add(ended(IDS[0], collected(IDS[0], 12_000)))
    assert known(jobs) == IDS[:1]


def test_what_the_client_has_fetched_takes_no_room_any_more() -> None:
    jobs = archive(size_bytes=20_000)
    results = collected(IDS[0], 12_000)
    jobs.add(ended(IDS[0], results))
    results.fetch(1, 10)
    jobs.add(ended(IDS[1], collected(IDS[0], 12_000)))
    assert known(jobs) == IDS[:2]


def test_a_job_is_forgotten_when_its_time_is_over() -> None:
    clock = ManualClock()
    jobs = archive(clock)
    jobs.add(ended(IDS[0]))
    clock.advance_ms(HOUR_MS - 1)
    jobs.add(ended(IDS[1]))
    assert known(jobs) == IDS[:2]
    clock.advance_ms(1)
    jobs.forget_expired()
    assert known(jobs) == [IDS[1]]


def test_the_bounds_are_the_options_of_flink() -> None:
    limits = ArchiveLimits.from_settings(Settings({}))
    assert (limits.size_bytes, limits.expiration_ms) == (52_428_800, HOUR_MS)
    settings = Settings(
        {
            "jobstore.cache-size": "1kb",
            "jobstore.expiration-time": "1 min",
            "jobstore.max-capacity": "5",
        }
    )
    assert ArchiveLimits.from_settings(settings) == ArchiveLimits(5, 1024, 60_000)
