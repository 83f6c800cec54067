"""Groups of runs that share one Spark application and its settings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from testkit.chaos.digest_job import DigestJob
from testkit.chaos.disturbances import (
    STORAGE_CONTROL,
    bad_storage,
    freeze_one,
    kill_all,
    random_kills,
)
from testkit.chaos.events_job import EventsJob
from testkit.chaos.jobs import ChaosJob
from testkit.chaos.plays import (
    DAMAGES,
    POISON,
    rescale_from_checkpoint,
    rescale_from_savepoint,
    start_from_damaged,
)
from testkit.chaos.runner import ChaosRunner, Outcome
from testkit.chaos.scenarios import (
    EVENT_KILLS,
    KILLS,
    SMOKE,
    UPLOADS,
    USER_CODE,
    Scenario,
)
from testkit.chaos.stage import Play

_RANDOM_S: Final = 120.0
_MANY_FAILURES: Final = {"execution.checkpointing.tolerable-failed-checkpoints": "1000"}


@dataclass(frozen=True)
class Group:
    """Scenarios and plays that run under `settings`, which override the suite's own.

    Each runs `repeats` times, or once if the suite was started with fewer. `needs_in_flight`: in each run some
    checkpoint must contain rows that its barriers overtook, as otherwise none was really unaligned.
    """

    scenarios: tuple[Scenario, ...] = ()
    plays: dict[str, Play] = field(default_factory=dict[str, Play])
    settings: dict[str, str] = field(default_factory=dict[str, str])
    job: ChaosJob = field(default_factory=DigestJob)
    repeats_max: int = 5
    needs_in_flight: bool = False

    def count(self, repeats: int, only: str = "") -> int:
        """Return the number of runs."""
        names = [*(scenario.name for scenario in self.scenarios), *self.plays]
        return sum(only in name for name in names) * min(repeats, self.repeats_max)

    def runs(self, runner: ChaosRunner, repeats: int, only: str = "") -> Iterator[Outcome]:
        """Run all runs whose name contains `only`, and yield outcomes as they come."""
        for one in self._all(runner):
            if only in one[0]:
                for repeat in range(min(repeats, self.repeats_max)):
                    yield self._judged(one[1](repeat))

    def _judged(self, outcome: Outcome) -> Outcome:
        if not self.needs_in_flight or outcome.mistakes or outcome.in_flight_bytes > 0:
            return outcome
        return replace(outcome, mistakes=("no checkpoint contained data in flight",))

    def _all(self, runner: ChaosRunner) -> list[tuple[str, Callable[[int], Outcome]]]:
        found: list[tuple[str, Callable[[int], Outcome]]] = []
        for scenario in self.scenarios:
            found.append((scenario.name, lambda n, one=scenario: runner.run(one, n)))
        for name, play in self.plays.items():
            found.append((name, lambda n, name=name, play=play: runner.run_with(name, n, play)))
        return found


_SMOKE: Final = tuple(scenario for scenario in KILLS if scenario.name in SMOKE)
_UNALIGNED: Final = {"execution.checkpointing.unaligned.enabled": "true"}
_ROCKSDB: Final = {"state.backend.type": "rocksdb"}
# So fast that barriers overtake rows waiting in channels.
_HURRIED_EVENTS: Final = EventsJob(count=16_000, rows_per_second=1_000_000)
# From unaligned checkpoints subtasks would continue from the smallest of their event times: other events would be late.
_RESCALED: Final[dict[str, Play]] = {
    "from a savepoint at another parallelism": rescale_from_savepoint(3),
    "from a checkpoint at another parallelism": rescale_from_checkpoint(1),
}

GROUPS: Final[dict[str, Group]] = {
    "smoke": Group(
        _SMOKE,
        {
            "poison is set aside": POISON["poison is set aside"],
            DAMAGES[0].name: start_from_damaged(DAMAGES[0]),
        },
    ),
    "kills": Group(KILLS),
    "kills-unaligned": Group(
        _SMOKE,
        settings=_UNALIGNED,
        job=DigestJob(count=60_000, rows_per_second=1_000_000),
        repeats_max=3,
    ),
    "kills-rocksdb": Group(_SMOKE, settings=_ROCKSDB, repeats_max=3),
    "events": Group(EVENT_KILLS, _RESCALED, job=EventsJob(), repeats_max=2),
    "events-rocksdb": Group(EVENT_KILLS, _RESCALED, _ROCKSDB, EventsJob(), repeats_max=2),
    "events-unaligned": Group(
        EVENT_KILLS,
        settings=_UNALIGNED,
        job=_HURRIED_EVENTS,
        repeats_max=2,
        needs_in_flight=True,
    ),
    "events-unaligned-rocksdb": Group(
        EVENT_KILLS,
        settings={**_UNALIGNED, **_ROCKSDB},
        job=_HURRIED_EVENTS,
        repeats_max=2,
        needs_in_flight=True,
    ),
    "all-at-once": Group(plays={"all TaskManagers at once": kill_all}),
    "random": Group(
        plays={"random kills for two minutes": random_kills(_RANDOM_S, (3, 9))},
        job=DigestJob(count=400_000),
        repeats_max=1,
    ),
    "frozen": Group(
        plays={"frozen TaskManager": freeze_one(6)},
        settings={"heartbeat.interval": "500 ms", "heartbeat.timeout": "3 s"},
        repeats_max=3,
    ),
    "user-code": Group(
        USER_CODE,
        settings={
            "execution.checkpointing.timeout": "3 s",
            "task.cancellation.timeout": "3 s",
        },
        repeats_max=3,
    ),
    "storage": Group(
        UPLOADS,
        {
            "storage is full": bad_storage("full_after=8000", 5),
            "storage is slow": bad_storage("slow_ms=50", 40),
            "storage fails one write in ten": bad_storage("fail_writes=0.1", 3),
        },
        {
            **_MANY_FAILURES,
            "execution.checkpointing.dir": "faulty://{directory}/checkpoints?control={directory}/"
            + STORAGE_CONTROL,
        },
        DigestJob(count=20_000),
        repeats_max=3,
    ),
    "damage": Group(
        plays={damage.name: start_from_damaged(damage) for damage in DAMAGES}, repeats_max=2
    ),
    "poison": Group(plays=POISON, repeats_max=2),
}
"""Groups by name. `smoke` is part of continuous integration, all others of `make chaos`."""
