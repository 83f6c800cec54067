"""One simulated run: what goes wrong in it is drawn from the seed; what does not hold after it is told."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.gateways.dispatcher import JobResult
from headrace.gateways.job_master import JobDetails
from testkit.simulation.lossy_network import LinkFaults
from testkit.simulation.simulated_cluster import SimulatedCluster
from testkit.simulation.simulated_job import (
    counting_job,
    expected_output,
    forget_output,
    output_of,
)

COUNT = 400
INTERVAL_MS = 300
HEARTBEAT_MS = 2_000

SETTINGS = {
    "heartbeat.interval": f"{HEARTBEAT_MS} ms",
    "heartbeat.timeout": "10 s",
    "pekko.ask.timeout": "2 s",
    "cluster.registration.error-delay": "1 s",
    "cluster.registration.refused-registration-delay": "1 s",
    "taskmanager.slot.timeout": "5 s",
    "resourcemanager.taskmanager-timeout": "1 h",
}
RESTARTS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "50",
    "restart-strategy.fixed-delay.delay": "500 ms",
}


# What a lost message, a lost TaskManager or a lost connection may look like to a job.
LOSSES = {
    "AskTimeoutError",
    "ConnectionLostError",
    "PartitionConnectionError",
    "PartitionNotFoundError",
    "ProducerFailedError",
    "RecipientUnreachableError",
    "SlotLostError",
    "TaskLostError",
    "TaskManagerLostError",
    "TaskSubmissionError",
}


@dataclass(frozen=True)
class Plan:
    """What is going to happen."""

    faults: LinkFaults
    kill_times_ms: tuple[float, ...]
    cut_times_ms: tuple[tuple[float, float], ...]
    fail_at: int | None
    cancel_at_ms: float | None
    has_restarts: bool
    parallelism: int
    slots_per_task_manager: int

    @property
    def allowed_causes(self) -> frozenset[str]:
        """Classes of errors that a job may fail with under these faults."""
        causes: set[str] = set()
        if self.fail_at is not None:
            causes |= {"UserCodeError"}
        if self.kill_times_ms or self.cut_times_ms or self.faults.loss or self.faults.reordering:
            causes |= LOSSES
        return frozenset(causes)

    @classmethod
    def draw(cls, seed: int) -> "Plan":
        """Draw from a generator that nothing else uses."""
        random = SeededRandom(seed ^ 0x5EED)
        kill_count = random.choice([0, 0, 1, 1, 2])
        return cls(
            faults=LinkFaults(
                loss=random.choice([0.0, 0.01, 0.05]),
                duplication=random.choice([0.0, 0.02]),
                reordering=random.choice([0.0, 0.05]),
                delay_min_ms=0.1,
                delay_max_ms=random.choice([1.0, 20.0, 200.0]),
            ),
            kill_times_ms=tuple(random.uniform(100, 10_000) for _ in range(kill_count)),
            cut_times_ms=tuple(
                (random.uniform(100, 8_000), random.choice([500.0, 5_000.0, 15_000.0]))
                for _ in range(random.choice([0, 0, 0, 1]))
            ),
            fail_at=random.choice([None, None, None, random.randrange(COUNT)]),
            cancel_at_ms=random.choice([None, None, None, None, random.uniform(0, 10_000)]),
            has_restarts=random.random() < 0.7,
            parallelism=random.choice([1, 2, 3]),
            slots_per_task_manager=random.choice([1, 1, 2]),
        )


def checkpoint_settings(seed: int) -> dict[str, str]:
    """How often checkpoints are taken in the run of `seed`, and in which way."""
    random = SeededRandom(seed ^ 0xC4EC)
    return {
        "execution.checkpointing.interval": random.choice(["300 ms", "1 s", "3 s"]),
        "execution.checkpointing.min-pause": random.choice(["0 ms", "0 ms", "500 ms"]),
        # Messages that are lost are not sent again by the runtime: a checkpoint may wait for one for ever.
        "execution.checkpointing.timeout": "4 s",
        "execution.checkpointing.tolerable-failed-checkpoints": "1000",
        "execution.checkpointing.unaligned.enabled": random.choice(["false", "false", "true"]),
        "execution.checkpointing.aligned-checkpoint-timeout": random.choice(["0 ms", "100 ms"]),
    }


def take_checkpoints_often(monkeypatch: pytest.MonkeyPatch, *, is_unaligned: bool) -> None:
    """Have every run of a test take them three times a second, in one way."""
    drawn = checkpoint_settings

    def settings(seed: int) -> dict[str, str]:
        return drawn(seed) | {
            "execution.checkpointing.interval": "300 ms",
            "execution.checkpointing.unaligned.enabled": str(is_unaligned).lower(),
        }

    monkeypatch.setattr(f"{__name__}.checkpoint_settings", settings)


@dataclass(frozen=True)
class Outcome:
    """How it ended, and all that is wrong with that."""

    result: JobResult
    faults: tuple[str, ...]
    trace_digest: str
    trace_lines: tuple[str, ...]
    details: JobDetails
    release_count: int
    """Results that were released while the job went on."""


def run_scenario(
    seed: int,
    *,
    takes_checkpoints: bool = False,
    numbers_path: str | None = None,
    is_sliced: bool = False,
    stored_as: tuple[str, str] | None = None,
    is_cancelled_amid_reading: bool = False,
) -> Outcome:
    """Run the counting job through the faults of `seed` and look at what must hold.

    `numbers_path`: a file with the numbers up to `COUNT`, to be read instead of the paced source. `is_sliced`: each
    subtask restarts without the others. `stored_as`: the kind of all exchanges, and where their files are to lie.
    `is_cancelled_amid_reading`: the job ends soon after the first result is written, which somebody is to read then.
    """
    plan = Plan.draw(seed)
    if is_cancelled_amid_reading:
        plan = replace(plan, cancel_at_ms=0.0)
    job_settings: dict[str, str] = {}
    settings = SETTINGS
    if stored_as is not None:
        job_settings = {"execution.batch-shuffle-mode": stored_as[0]}
        settings = SETTINGS | {"io.tmp.dirs": stored_as[1]}
    if takes_checkpoints:
        # A restart is what checkpoints are for.
        plan = replace(plan, has_restarts=True)
        job_settings = checkpoint_settings(seed)
    sim = SimulatedCluster(
        seed,
        settings=settings,
        slots_per_task_manager=plan.slots_per_task_manager,
        faults=plan.faults,
    )
    name = f"simulated-{seed}"
    forget_output(name)
    for at_ms in plan.kill_times_ms:
        sim.later(at_ms, sim.kill_some_worker)
    for at_ms, duration_ms in plan.cut_times_ms:
        sim.later(at_ms, functools.partial(sim.cut_off_some_worker, duration_ms))
    job_id = sim.new_job_id()
    sim.submit(
        counting_job(
            job_id,
            name,
            count=COUNT,
            interval_ms=INTERVAL_MS,
            parallelism=plan.parallelism,
            settings={**job_settings, **(RESTARTS if plan.has_restarts else {})},
            fail_at=plan.fail_at,
            numbers_path=numbers_path,
            is_sliced=is_sliced,
        )
    )
    if is_cancelled_amid_reading:
        _cancel_amid_reading(sim, job_id, SeededRandom(seed ^ 0xCA))
    elif plan.cancel_at_ms is not None:
        sim.later(plan.cancel_at_ms, lambda: sim.cancel(job_id))
    result = sim.await_result(job_id)
    details = sim.loop.run_until(sim.dispatcher.request_job_details(job_id))
    leaks = _leaks(sim)
    faults = (*_faults_of_the_result(plan, result, name), *sim.exchanges.early_releases, *leaks)
    sim.close()
    return Outcome(
        result,
        faults,
        sim.trace.digest,
        tuple(sim.trace.lines),
        details,
        sim.exchanges.release_count,
    )


def _cancel_amid_reading(sim: SimulatedCluster, job_id: JobId, random: SeededRandom) -> None:
    if sim.exchanges.has_finished_results:
        sim.later(random.uniform(0, 100), lambda: sim.cancel(job_id))
    else:
        sim.later(10, lambda: _cancel_amid_reading(sim, job_id, random))


def _faults_of_the_result(plan: Plan, result: JobResult, name: str) -> Iterator[str]:
    match result.status:
        case JobStatus.FINISHED:
            if output_of(name) != expected_output(COUNT):
                yield "the output is not exact"
        case JobStatus.CANCELED:
            if plan.cancel_at_ms is None:
                yield "nobody cancelled the job"
        case JobStatus.FAILED if result.failure is not None:
            text = f"{result.failure.class_name}: {result.failure.text}"
            if plan.has_restarts:
                yield f"a job with restarts left has FAILED: {text}"
            if result.failure.class_name not in plan.allowed_causes:
                yield f"nobody caused this: {text}"
        case _:
            yield f"the job ended as {result.status}, without a cause"


def _leaks(sim: SimulatedCluster) -> list[str]:
    """What somebody holds, after two rounds of heartbeats on a sound network, that no job owns."""
    sim.faults.set_faults(LinkFaults(delay_min_ms=0.1, delay_max_ms=5))
    sim.run_for(2 * HEARTBEAT_MS + 8_000)
    return sim.leaks()
