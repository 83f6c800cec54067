"""Values of subtasks are combined to the value of a vertex."""

import pytest

from headrace.core.clock import ManualClock
from headrace.metrics import MetricGroup
from headrace.metrics.combination import combination_of, combine_metrics
from headrace.metrics.metric_name import Combination, MetricKind, MetricScope
from headrace.metrics.names import METRIC_NAMES


def test_every_row_with_several_values_says_how_they_combine() -> None:
    for row in METRIC_NAMES:
        if row.scope in (MetricScope.TASK, MetricScope.OPERATOR):
            assert row.combination is not None, row.name


@pytest.mark.parametrize(
    ("name", "values", "combined"),
    [
        ("numRecordsIn", [1, 2], 3),
        ("numBytesOutPerSecond", [1, 2], 3),
        ("busyTimeMsPerSecond", [200, 400], 300),
        ("accumulateBusyTimeMs", [200, 400], 600),
        ("currentInputWatermark", [5, 3], 3),
        ("inPoolUsage", [0.25, 1.0], 1.0),
        ("inputQueueLength", [2, 3], 5),
        ("Window.numLateRecordsDropped", [2, 3], 5),
        ("map.size_min", [2, 3], 2),
        ("map.size_max", [2, 3], 3),
        ("map.size_sum", [2, 3], 5),
        ("map.time_p999", [2, 4], 3),
        ("map.time_median", [2, 4], 3),
        ("map.max", [2, 3], 5),
        ("map.tenant.acme.orders", [2, 3], 5),
    ],
)
def test_values_combine_as_their_name_says(name: str, values: list[float], combined: float) -> None:
    assert combine_metrics([{name: value} for value in values]) == {name: combined}


def test_a_name_that_some_subtasks_lack_is_combined_over_the_others() -> None:
    assert combine_metrics([{"busyTimeMsPerSecond": 400}, {}]) == {"busyTimeMsPerSecond": 400}


def test_names_may_stand_in_another_order_in_each_subtask() -> None:
    snapshots = [
        {"numRecordsIn": 1.0, "currentInputWatermark": 5.0},
        {"currentInputWatermark": 3.0, "numRecordsIn": 2.0},
        {"numRecordsIn": 4.0, "map.size_max": 7.0},
    ]
    combined = {"numRecordsIn": 7.0, "currentInputWatermark": 3.0, "map.size_max": 7.0}
    assert combine_metrics(snapshots) == combined


def test_nothing_is_combined_from_no_subtasks() -> None:
    assert combine_metrics([]) == combine_metrics([{}, {}]) == {}


def test_of_a_distribution_only_count_and_sum_add_up() -> None:
    group = MetricGroup(ManualClock())
    group.distribution("d").update(1)
    added = {name for name in group.snapshot() if combination_of(name) is Combination.SUM}
    assert added == {"d_count", "d_sum"}


def test_counts_and_rates_always_add_up() -> None:
    for row in METRIC_NAMES:
        if row.kind in (MetricKind.COUNTER, MetricKind.METER):
            assert row.combination is Combination.SUM
