"""Unaligned checkpoints of a whole cluster on one thread, with lost messages, dead workers and cut connections."""

import pytest

from headrace.task.checkpointing.channel_state import InFlightData
from testkit.simulation.simulated_cluster import failure_note
from tests.simulation import scenario
from tests.simulation.seeds import seeds

SEEDS = seeds(10, first=40)


@pytest.fixture(autouse=True)
def _overtaking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints are taken often, and their barriers overtake, at once or after a while."""
    scenario.take_checkpoints_often(monkeypatch, is_unaligned=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_barriers_that_overtake_lose_and_double_no_row(seed: int) -> None:
    outcome = scenario.run_scenario(seed, takes_checkpoints=True)
    assert outcome.faults == (), failure_note(seed)("not as it must be")


@pytest.mark.slow
def test_something_is_in_flight_when_barriers_overtake(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[bool] = []
    write = InFlightData.write

    def counted(self: InFlightData, *values: object) -> object:
        stored.append(True)
        return write(self, *values)  # type: ignore[arg-type]

    monkeypatch.setattr(InFlightData, "write", counted)
    for seed in SEEDS[:4]:
        scenario.run_scenario(seed, takes_checkpoints=True)
    assert stored
