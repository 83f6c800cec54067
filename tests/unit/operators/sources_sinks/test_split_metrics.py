"""SplitMetrics: figures of the splits that a reader tells apart."""

import pytest

from headrace.core.clock import ManualClock
from headrace.functions.watermarks import WatermarkStrategy
from headrace.metrics.groups import MetricGroup
from headrace.operators.sources_sinks import event_time_output
from headrace.operators.sources_sinks.event_time_output import SplitMetrics
from headrace.operators.sources_sinks.split_watermarks import SplitWatermarks


class World:
    """Two named splits beside the one without a name."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metrics = MetricGroup(self.clock)
        self.watermarks = SplitWatermarks(WatermarkStrategy.for_monotonous_timestamps(), 1_000)
        self.splits = SplitMetrics(self.metrics, self.clock)
        for split_id in ("", "t-0", "t-1"):
            self.watermarks.add_split(split_id)
        self.pass_time(0)

    def pass_time(self, duration_ms: int) -> None:
        self.clock.advance_ms(duration_ms)
        self.watermarks.on_periodic_emit(int(self.clock.monotonic_ms()))
        self.splits.update(self.watermarks)

    def of(self, split_id: str) -> dict[str, float]:
        prefix = f"split.{split_id}.watermark."
        values = self.metrics.snapshot().items()
        return {name.removeprefix(prefix): one for name, one in values if name.startswith(prefix)}


@pytest.fixture
def world() -> World:
    return World()


def test_a_split_has_a_watermark_once_it_had_rows(world: World) -> None:
    assert "currentWatermark" not in world.of("t_0")
    world.watermarks.on_batch("t-0", 500)
    world.pass_time(100)
    assert world.of("t_0")["currentWatermark"] == 499
    assert "currentWatermark" not in world.of("t_1")


def test_the_time_of_a_split_is_active_idle_or_paused(world: World) -> None:
    world.watermarks.pause({"t-1"})
    world.pass_time(400)
    world.watermarks.pause(set())
    for _ in range(4):
        world.watermarks.activate("t-0")
        world.pass_time(700)
    times = ("accumulatedActiveTimeMs", "accumulatedIdleTimeMs", "accumulatedPausedTimeMs")
    assert [world.of("t_0")[name] for name in times] == [3_200, 0, 0]
    assert [world.of("t_1")[name] for name in times] == [2_100, 700, 400]
    assert world.of("t_0")["activeTimeMsPerSecond"] == 1_000


def test_a_split_that_is_released_and_one_without_a_name_have_no_figures(world: World) -> None:
    world.watermarks.release_split("t-0")
    world.pass_time(1)
    assert {name.split(".")[1] for name in world.metrics.snapshot()} == {"t_1"}


def test_only_so_many_splits_have_figures_until_others_are_released(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_time_output, "SPLITS_MAX", 2)
    world.watermarks.add_split("t-2")
    world.pass_time(1)
    assert not world.of("t_2")
    world.watermarks.release_split("t-1")
    world.pass_time(1)
    assert world.of("t_2")
