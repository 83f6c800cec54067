"""Hosts whose wall clocks are an hour apart: nothing that happens depends on clocks that agree."""

import functools

import pytest

from headrace.core.clock import Clock, ManualClock
from testkit.simulation.simulated_cluster import SimulatedCluster, failure_note
from tests.simulation import scenario
from tests.simulation.seeds import seeds

HOUR_MS = 3_600_000


class SkewedClock:
    """Runs as another one does and shows another time. Monotonic clocks of two hosts have nothing in common anyway."""

    def __init__(self, clock: Clock, ahead_ms: int) -> None:
        self._clock = clock
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._ahead_ms

    def now_ns(self) -> int:
        return self._clock.now_ns() + self._ahead_ms * 1_000_000

    def monotonic_ns(self) -> int:
        return self._clock.monotonic_ns() + 7 * self._ahead_ms * 1_000_000

    def monotonic_ms(self) -> float:
        return self._clock.monotonic_ms() + 7 * self._ahead_ms


def an_hour_apart(name: str, clock: ManualClock) -> Clock:
    """Every other TaskManager is an hour ahead of the master, the others an hour behind."""
    return SkewedClock(clock, HOUR_MS if int(name.rpartition("-")[2]) % 2 else -HOUR_MS)


def are_alike(one: str, other: str) -> bool:
    """Within a millisecond, as differences of large floats are rounded; sizes aside.

    A message may tell people how long a barrier was on its way, by the clocks of two hosts.
    """
    words, others = one.split(" "), other.split(" ")
    if ">" not in words[1]:
        return words == others
    is_same_moment = abs(int(words[0]) - int(others[0])) <= 1_000_000
    return is_same_moment and words[1:4] + words[5:] == others[1:4] + others[5:]


@pytest.fixture(autouse=True)
def _debloating(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which looks at the clock too."""
    debloating = {
        "taskmanager.network.memory.buffer-debloat.enabled": "true",
        "taskmanager.network.memory.buffer-debloat.target": "100 ms",
    }
    monkeypatch.setattr(scenario, "SETTINGS", scenario.SETTINGS | debloating)


def take_checkpoints(
    monkeypatch: pytest.MonkeyPatch, *, is_unaligned: bool, aligned_timeout: str
) -> None:
    scenario.take_checkpoints_often(monkeypatch, is_unaligned=is_unaligned)
    drawn = scenario.checkpoint_settings

    def settings(seed: int) -> dict[str, str]:
        timeout = {"execution.checkpointing.aligned-checkpoint-timeout": aligned_timeout}
        return drawn(seed) | timeout

    monkeypatch.setattr(scenario, "checkpoint_settings", settings)


def run(monkeypatch: pytest.MonkeyPatch, seed: int, *, is_skewed: bool) -> scenario.Outcome:
    clock_of = {"clock_of": an_hour_apart} if is_skewed else {}
    made = functools.partial(SimulatedCluster, **clock_of)
    monkeypatch.setattr(scenario, "SimulatedCluster", made)
    return scenario.run_scenario(seed, takes_checkpoints=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("is_unaligned", [False, True], ids=["aligned", "unaligned"])
def test_the_same_messages_are_sent_at_the_same_moments_as_with_clocks_that_agree(
    monkeypatch: pytest.MonkeyPatch, seed: int, is_unaligned: bool
) -> None:
    take_checkpoints(monkeypatch, is_unaligned=is_unaligned, aligned_timeout="0 ms")
    agreed = run(monkeypatch, seed, is_skewed=False)
    skewed = run(monkeypatch, seed, is_skewed=True)
    assert skewed.faults == (), failure_note(seed)("not as it must be")
    # Heartbeats, time-outs, checkpoints and their ends, restarts: line by line.
    assert len(agreed.trace_lines) > 10
    traces = zip(agreed.trace_lines, skewed.trace_lines, strict=True)
    for number, (one, other) in enumerate(traces):
        assert are_alike(one, other), failure_note(seed)(f"line {number}: {one} | {other}")
    assert skewed.details.status is agreed.details.status


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(10))
def test_barriers_that_overtake_earlier_or_later_for_it_lose_and_double_no_row(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """How long a barrier was on its way is told by the clocks of two hosts: only the aligned time-out shifts."""
    take_checkpoints(monkeypatch, is_unaligned=True, aligned_timeout="100 ms")
    outcome = run(monkeypatch, seed, is_skewed=True)
    assert outcome.faults == (), failure_note(seed)("not as it must be")
