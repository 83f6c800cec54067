"""What the Dispatcher remembers of jobs that have ended, and what it forgets."""

from headrace.cluster.dispatcher.archive import ArchivedJob, ArchiveLimits, JobArchive
from headrace.cluster.job_master.collect_coordinator import CollectCoordinator
from headrace.cluster.job_master.operator_coordinator import CoordinatorContext
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId, OperatorId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.dispatcher import JobResult
from headrace.gateways.job_master import JobDetails
from tests.unit.cluster.cluster_samples import attempt

OPERATOR = OperatorId(b"o" * 16)
IDS = [JobId(bytes([number]) * 16) for number in range(4)]
HOUR_MS = 3_600_000


def archive(
    clock: ManualClock | None = None, *, capacity: int = 1000, size_bytes: int = 1 << 20
) -> JobArchive:
    return JobArchive(ArchiveLimits(capacity, size_bytes, HOUR_MS), clock or ManualClock())


def ended(job_id: JobId, collected: CollectCoordinator | None = None) -> ArchivedJob:
    details = JobDetails(job_id, "job", JobStatus.FINISHED, {}, ())
    result = JobResult(job_id, "job", JobStatus.FINISHED, 1, {})
    return ArchivedJob(details, result, {} if collected is None else {OPERATOR: collected})


def collected(size_bytes: int) -> CollectCoordinator:
    context = CoordinatorContext(
        IDS[0],
        OPERATOR,
        "Collect",
        1,
        Settings({}),
        send_event=lambda *_: None,
        run_async=lambda _: None,
        fail_job=lambda _: None,
    )
    coordinator = CollectCoordinator(context, b"")
    coordinator.handle_event(attempt(0), bytes(size_bytes))
    return coordinator


def known(jobs: JobArchive) -> list[JobId]:
    return [job.details.job_id for job in jobs.jobs()]


def test_the_oldest_job_beyond_the_capacity_is_forgotten() -> None:
    jobs = archive(capacity=2)
    for job_id in IDS[:3]:
        jobs.add(ended(job_id))
    assert jobs.find(IDS[0]) is None
    assert known(jobs) == IDS[1:3]


def test_the_oldest_jobs_beyond_the_size_are_forgotten() -> None:
    jobs = archive(size_bytes=10_000)
    jobs.add(ended(IDS[0]))
    jobs.add(ended(IDS[1], collected(6_000)))
    assert known(jobs) == IDS[:2]
    jobs.add(ended(IDS[2], collected(6_000)))
    assert known(jobs) == [IDS[2]]


def test_the_last_job_is_remembered_however_large_it_is() -> None:
    jobs = archive(size_bytes=10)
    jobs.add(ended(IDS[0], collected(6_000)))
    assert known(jobs) == IDS[:1]


def test_what_the_client_has_fetched_takes_no_room_any_more() -> None:
    jobs = archive(size_bytes=10_000)
    results = collected(6_000)
    jobs.add(ended(IDS[0], results))
    results.fetch(1, 10)
    jobs.add(ended(IDS[1], collected(6_000)))
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
