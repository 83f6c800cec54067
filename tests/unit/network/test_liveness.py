"""Nobody sleeps while there is work: tasks that run only when they are woken, and a watchdog.

Three stages, connected by key, on as many TaskManagers as there are subtasks, with the least memory or plenty of it.
A task steps until there is nothing to do and then sleeps until it is told; now and then it is busy for a while. When no
task has got on for a second of virtual time although some have not ended, the watchdog says what the exchange of each
looks like.
"""

from collections.abc import Sequence

import pytest

from headrace.core.randomness import SeededRandom
from headrace.network.metrics import describe_exchange
from tests.unit.network.exchange_chains import Chain, Stage, memory_of, minimum_pages
from tests.unit.network.faulty_cluster import FaultyCluster
from tests.unit.network.simulated import SimulatedCluster

PATIENCE_MS = 1_000
LOOK_MS = 100
BUSY_MS = 200
ROWS = 150


class StuckError(Exception):
    """Nothing moves, and not all have ended."""


class Watchdog:
    """Looks ten times a second."""

    def __init__(self, cluster: SimulatedCluster, stages: Sequence[Stage]) -> None:
        self._loop = cluster.loop
        self._stages = stages
        self._moved_ms = 0
        self._look()

    def moved(self) -> None:
        self._moved_ms = self._loop.clock.now_ms()

    def _look(self) -> None:
        waiting = [stage for stage in self._stages if not stage.has_ended]
        if not waiting:
            return
        if self._loop.clock.now_ms() - self._moved_ms > PATIENCE_MS:
            raise StuckError("\n".join(map(described, waiting)))
        self._loop.schedule(LOOK_MS, self._look)


def described(stage: Stage) -> str:
    gates = [] if stage.source is None else [stage.source]
    partitions = [] if stage.sink is None else [stage.sink.partition]
    return f"{stage.describe()}\n{describe_exchange(gates, partitions)}"


class Sleeper:
    """Steps a task as its mailbox would."""

    def __init__(
        self, stage: Stage, cluster: SimulatedCluster, random: SeededRandom, dog: Watchdog
    ) -> None:
        self._stage = stage
        self._loop = cluster.loop
        self._random = random
        self._dog = dog
        self._is_scheduled = False
        self.wake()

    def wake(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            busy_ms = BUSY_MS if self._random.random() < 0.02 else 1.0
            self._loop.schedule(self._random.uniform(0, busy_ms), self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        stage = self._stage
        if stage.step():
            self._dog.moved()
            self.wake()
        elif not stage.has_ended and stage.sink is not None and not stage.sink.is_available:
            stage.sink.on_available(self.wake)
        elif not stage.has_ended:
            assert stage.source is not None
            stage.source.on_available(self.wake)


def run_chain(cluster: SimulatedCluster, seed: int, parallelism: int, pages: int) -> Chain:
    """Run it to its end; StuckError where there is none."""
    options = {**memory_of(pages), "taskmanager_network_memory_floating__buffers__per__gate": "1"}
    nodes = [cluster.start(f"tm-{index}", **options) for index in range(parallelism)]
    chain = Chain(seed, nodes, ROWS)
    dog = Watchdog(cluster, chain.stages)
    for stage in chain.stages:
        Sleeper(stage, cluster, chain.random, dog)
    cluster.loop.run_until(lambda: all(stage.has_ended for stage in chain.stages), 1_000_000)
    return chain


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_tasks_that_run_only_when_they_are_woken_always_get_on(seed: int) -> None:
    parallelism = 1 + seed % 3
    delays = SeededRandom(seed)
    cluster = SimulatedCluster(lambda source, target: delays.choice([0.0, 0.5, 20.0]))
    pages = minimum_pages(parallelism) if seed % 2 else 1000
    chain = run_chain(cluster, seed, parallelism, pages)
    received = [value for stage in chain.stages if stage.sink is None for value in stage.received]
    assert sorted(received) == sorted([*range(ROWS)] * parallelism)
    cluster.assert_nothing_leaks()


def test_the_watchdog_says_who_waits_for_what() -> None:
    with pytest.raises(StuckError) as caught:
        run_chain(FaultyCluster("drop AddCredit"), seed=1, parallelism=2, pages=1000)
    text = str(caught.value)
    assert "source 0: ended False" in text
    assert "subpartition" in text and "backlog" in text
