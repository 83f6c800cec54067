"""LatencyStats: Flink's names for what is told apart, and the last so many ages."""

import pytest

from headrace.core.config import Settings
from headrace.core.elements import LatencyMarker
from headrace.core.errors import ConfigurationError
from headrace.core.ids import OperatorId
from headrace.metrics.groups import MetricGroup
from headrace.metrics.latency import LatencyStats

FIRST, SECOND, OWN = (OperatorId(bytes([number]) * 16) for number in (1, 2, 7))
A, B, O = FIRST.hex(), SECOND.hex(), OWN.hex()  # noqa: E741  # as in the names below


def told(granularity: str, **settings: str) -> dict[str, float]:
    """What an operator tells of one marker of each subtask of two sources, 1, 2, 3 and 4 ms old."""
    options = {"metrics.latency.granularity": granularity, **settings}
    group = MetricGroup()
    stats = LatencyStats(group, OWN, 3, Settings(options))
    origins = [(FIRST, 0), (FIRST, 1), (SECOND, 0), (SECOND, 1)]
    for age_ms, (source_id, subtask_index) in enumerate(origins, start=1):
        stats.report(LatencyMarker(1000 - age_ms, source_id, subtask_index), 1000)
    return LatencyStats.snapshot_of(group)


@pytest.mark.parametrize(
    ("granularity", "wanted"),
    [
        ("single", {f"latency.operator_id.{O}": 4}),
        (
            "operator",
            {
                f"latency.source_id.{A}.operator_id.{O}": 2,
                f"latency.source_id.{B}.operator_id.{O}": 4,
            },
        ),
        (
            "SUBTASK",
            {
                f"latency.source_id.{A}.source_subtask_index.0.operator_id.{O}": 1,
                f"latency.source_id.{A}.source_subtask_index.1.operator_id.{O}": 2,
                f"latency.source_id.{B}.source_subtask_index.0.operator_id.{O}": 3,
                f"latency.source_id.{B}.source_subtask_index.1.operator_id.{O}": 4,
            },
        ),
    ],
)
def test_markers_are_told_apart_as_the_granularity_says(
    granularity: str, wanted: dict[str, int]
) -> None:
    ending = ".operator_subtask_index.3.latency_max"
    found = {name: value for name, value in told(granularity).items() if name.endswith("_max")}
    assert found == {name + ending: age_ms for name, age_ms in wanted.items()}


def test_only_the_last_so_many_count() -> None:
    name = f"latency.operator_id.{O}.operator_subtask_index.3.latency"
    values = told("single", **{"metrics.latency.history-size": "2"})
    assert (values[f"{name}_min"], values[f"{name}_count"]) == (3, 4)


def test_a_granularity_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="it must be one of single, operator, subtask"):
        told("vertex")


def test_a_history_of_nothing_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"metrics\.latency\.history-size"):
        told("single", **{"metrics.latency.history-size": "0"})


def test_where_no_marker_came_nothing_is_told() -> None:
    group = MetricGroup()
    LatencyStats(group, OWN, 0, Settings())
    assert LatencyStats.snapshot_of(group) == {}
