"""What runs together in one Spark application: settings, and the runs under them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from headrace.testing.chaos.digest_job import DigestJob
from headrace.testing.chaos.disturbances import freeze_one, kill_all, random_kills
from headrace.testing.chaos.runner import ChaosRunner, Outcome
from headrace.testing.chaos.scenarios import KILLS, SMOKE, STORAGE, USER_CODE, Scenario

Runs = Callable[[ChaosRunner, int], Iterator[Outcome]]
_UNALIGNED: Final = {"execution.checkpointing.unaligned.enabled": "true"}
_RANDOM_S: Final = 120.0


@dataclass(frozen=True)
class Group:
    """`settings` go over the suite's own; `runs(runner, repeats)` yields outcomes as they come."""

    runs: Runs
    settings: dict[str, str]
    job: DigestJob


def _each(scenarios: tuple[Scenario, ...]) -> Runs:
    def runs(runner: ChaosRunner, repeats: int) -> Iterator[Outcome]:
        for scenario in scenarios:
            for repeat in range(repeats):
                yield runner.run(scenario, repeat)

    return runs


def _random(runner: ChaosRunner, repeats: int) -> Iterator[Outcome]:
    yield runner.run_with("random kills for two minutes", 0, random_kills(7, _RANDOM_S, (3, 9)))


def _all_at_once(runner: ChaosRunner, repeats: int) -> Iterator[Outcome]:
    for repeat in range(repeats):
        yield runner.run_with("all TaskManagers at once", repeat, kill_all)


def _frozen(runner: ChaosRunner, repeats: int) -> Iterator[Outcome]:
    for repeat in range(repeats):
        yield runner.run_with("frozen TaskManager", repeat, freeze_one(8))


_SHORT: Final = DigestJob()
_SMOKE: Final = tuple(scenario for scenario in KILLS if scenario.name in SMOKE)

GROUPS: Final[dict[str, Group]] = {
    "smoke": Group(_each(_SMOKE), {}, _SHORT),
    "kills": Group(_each(KILLS), {}, _SHORT),
    "kills-unaligned": Group(_each(_SMOKE), _UNALIGNED, _SHORT),
    "kills-rocksdb": Group(_each(_SMOKE), {"state.backend.type": "rocksdb"}, _SHORT),
    "random": Group(_random, {}, DigestJob(count=480_000)),
    "all-at-once": Group(_all_at_once, {}, _SHORT),
    "frozen": Group(_frozen, {"heartbeat.interval": "500 ms", "heartbeat.timeout": "3 s"}, _SHORT),
    "user-code": Group(
        _each(USER_CODE),
        {
            "execution.checkpointing.timeout": "3 s",
            "task.cancellation.timeout": "3 s",
        },
        _SHORT,
    ),
    "storage": Group(
        _each(STORAGE),
        {"execution.checkpointing.tolerable-failed-checkpoints": "3"},
        _SHORT,
    ),
}
"""By name. `smoke` is part of continuous integration, everything else of `make chaos`."""
