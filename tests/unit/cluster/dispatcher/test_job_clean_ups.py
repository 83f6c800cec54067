"""JobCleanUps: what the storage does not delete of ended jobs is tried again, by few tasks, and told by name."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from headrace.cluster.dispatcher import job_clean_ups
from headrace.cluster.dispatcher.job_clean_ups import ATTEMPTS_AT_ONCE_MAX, JobCleanUps
from headrace.cluster.high_availability.leader_election_service import LeadershipLostError
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import CheckpointsLeft
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.randomness import SeededRandom
from headrace.rpc.loopback import LoopbackNetwork
from testkit.scripted_gateways import end_processes
from testkit.simulation.virtual_loop import VirtualLoop

NOTHING = CheckpointsLeft()
REFUSED = CheckpointsLeft(not_deleted=("s3://bucket/job",), cause="access denied")


class World:
    """A storage that refuses until it `obeys`, and ended jobs that left something there."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = VirtualLoop(self.clock)
        self.random = SeededRandom(1)
        self.obeys = False
        self.attempts_ms: list[float] = []
        self.failures: list[BaseException] = []
        self._networks: list[LoopbackNetwork] = []

    def clean_ups(self, *, has_successors: bool = False, **options: str) -> JobCleanUps:
        settings = {f"cleanup-strategy.{key}": value for key, value in options.items()}
        network = LoopbackNetwork(
            self.clock, self.random, loop=self.loop, settings=Settings(settings)
        )
        self._networks.append(network)
        service = network.create_service("master")
        service.on_fatal_error = self.failures.append
        return JobCleanUps(service, has_successors=has_successors)

    def job_id(self) -> JobId:
        return JobId.generate(self.random)

    async def attempt(self) -> CheckpointsLeft:
        self.attempts_ms.append(self.clock.monotonic_ms())
        return NOTHING if self.obeys else REFUSED

    def close(self) -> None:
        for network in self._networks:
            end_processes(network, self.loop)


@pytest.fixture
def world() -> Iterator[World]:
    one = World()
    yield one
    one.close()


def errors_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]


def test_pauses_double_up_to_the_longest_until_the_storage_obeys(world: World) -> None:
    clean_ups = world.clean_ups(**{"exponential-delay.max-backoff": "5 s"})
    clean_ups.add(world.job_id(), world.attempt)
    world.loop.run_for(19_000)
    assert world.attempts_ms == [0, 1_000, 3_000, 7_000, 12_000, 17_000]
    world.obeys = True
    world.loop.run_for(10_000)
    assert world.attempts_ms[6:] == [22_000]
    assert clean_ups.unclean_count == 0


def test_an_attempt_of_the_job_master_counts_as_the_first(world: World) -> None:
    world.clean_ups().add(world.job_id(), world.attempt, REFUSED)
    world.loop.run_for(2_000)
    assert world.attempts_ms == [1_000]


@pytest.mark.parametrize(
    ("options", "attempts_ms"),
    [
        ({"type": "none"}, [0]),
        (
            {"type": "fixed-delay", "fixed-delay.attempts": "2", "fixed-delay.delay": "4 s"},
            [0, 4_000, 8_000],
        ),
        ({"exponential-delay.attempts": "3"}, [0, 1_000, 3_000, 7_000]),
    ],
)
@pytest.mark.parametrize("has_successors", [True, False])
def test_what_is_left_after_the_last_attempt_is_told_once_with_cause_and_remedy(
    world: World,
    options: dict[str, str],
    attempts_ms: list[float],
    has_successors: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clean_ups = world.clean_ups(has_successors=has_successors, **options)
    job_id = world.job_id()
    clean_ups.add(job_id, world.attempt)
    world.loop.run_for(3_600_000)
    assert world.attempts_ms == attempts_ms
    assert clean_ups.unclean_count == 0
    (told,) = errors_in(caplog)
    assert f"job {job_id} has ended" in told and "s3://bucket/job" in told
    assert "The error was: access denied" in told
    assert "Cleanup-strategy.type allows no further attempt" in told
    who = "the next leader tries again" if has_successors else "there is no further attempt"
    assert who in told and "delete them manually" in told


def test_a_storage_that_refuses_for_long_is_told_once_for_all_jobs_and_so_is_its_end(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    clean_ups = world.clean_ups()
    for _ in range(30):
        clean_ups.add(world.job_id(), world.attempt)
    with caplog.at_level(logging.WARNING):
        world.loop.run_for(3 * 3_600_000)
        (told,) = caplog.messages
        assert "the files of 30 ended job(s)" in told and "s3://bucket/job" in told
        assert "The error is: access denied" in told
        assert "permit this process to delete there, or delete the files manually" in told
        world.obeys = True
        world.loop.run_for(3_600_000)
    assert clean_ups.unclean_count == 0
    assert caplog.messages[1:] == [
        "the storage deletes files again: all files of ended jobs are deleted, except those given up"
    ]


def test_few_attempts_are_under_way_at_once_and_jobs_that_wait_have_no_task(world: World) -> None:
    clean_ups = world.clean_ups()
    ends = asyncio.Semaphore(0)
    under_way = 0

    async def attempt() -> CheckpointsLeft:
        nonlocal under_way
        under_way += 1
        await ends.acquire()
        under_way -= 1
        return REFUSED

    for _ in range(100):
        clean_ups.add(world.job_id(), attempt)
    # Shorter than the pause before a second attempt.
    for ended in range(100):
        world.loop.run_for(1)
        assert under_way == min(ATTEMPTS_AT_ONCE_MAX, 100 - ended)
        ends.release()
    world.loop.run_for(1)
    assert (under_way, clean_ups.unclean_count) == (0, 100)


def test_a_storage_that_never_obeys_is_not_said_to_obey_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    clean_ups = world.clean_ups(**{"exponential-delay.attempts": "8"})
    clean_ups.add(world.job_id(), world.attempt)
    world.loop.run_for(3_600_000)
    assert clean_ups.unclean_count == 0
    assert "the storage does not delete" in caplog.text and "deletes files again" not in caplog.text


def test_of_too_many_jobs_the_one_that_ended_first_is_given_up(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_clean_ups, "UNCLEAN_MAX", 3)
    clean_ups = world.clean_ups()
    first = world.job_id()
    for job_id in (first, *(world.job_id() for _ in range(3))):
        clean_ups.add(job_id, world.attempt)
        world.loop.run_for(1)
    assert clean_ups.unclean_count == 3
    (told,) = errors_in(caplog)
    assert str(first) in told and "More than 3 ended jobs wait to be cleaned up" in told


def test_at_the_end_each_job_has_a_last_attempt_at_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    clean_ups = world.clean_ups()
    for _ in range(2):
        clean_ups.add(world.job_id(), world.attempt)
    world.loop.run_for(10_000)
    begun_ms = world.clock.monotonic_ms()

    async def finish() -> None:
        finished = clean_ups.finish()
        # One that ends as the cluster does.
        clean_ups.add(world.job_id(), world.attempt, REFUSED)
        await finished

    world.loop.run_until(finish())
    assert world.attempts_ms[-3:] == [begun_ms] * 3
    assert clean_ups.unclean_count == 0
    assert len(errors_in(caplog)) == 3
    assert all("The cluster ends: delete them manually" in told for told in errors_in(caplog))


def test_who_closes_while_an_attempt_is_under_way_is_told_what_was_left_before(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    clean_ups = world.clean_ups()

    async def stuck() -> CheckpointsLeft:
        return await asyncio.Future()

    clean_ups.add(world.job_id(), stuck, REFUSED)
    world.loop.run_for(2_000)
    clean_ups.close()
    world.loop.run_for(10)
    (told,) = errors_in(caplog)
    assert "s3://bucket/job" in told


def test_one_that_leads_no_more_leaves_the_rest_to_the_next_leader(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    clean_ups = world.clean_ups(has_successors=True)

    async def lost() -> CheckpointsLeft:
        raise LeadershipLostError("test", "another process leads")

    clean_ups.add(world.job_id(), lost)
    world.loop.run_for(10)
    assert clean_ups.unclean_count == 0
    assert errors_in(caplog) == [] and world.failures == []


def test_a_bug_in_an_attempt_ends_the_process(world: World) -> None:
    clean_ups = world.clean_ups()
    error = LookupError("a bug")

    async def broken() -> CheckpointsLeft:
        raise error

    clean_ups.add(world.job_id(), broken)
    world.loop.run_for(10)
    assert world.failures == [error]
