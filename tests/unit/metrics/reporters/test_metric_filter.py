"""MetricFilter: rules of scope, name and type."""

import pytest

from headrace.core.errors import ConfigurationError
from headrace.metrics.readings import GroupReading
from headrace.metrics.reporters.reporter import MetricFilter
from tests.unit.metrics.reporters.reports import process_reading, task_reading, user_reading

GROUPS = (
    process_reading({"Status.JVM.CPU.Load": 0.5}),
    task_reading({"numRecordsIn": 3, "numRecordsOut": 2, "busyTimeMsPerSecond": 10}),
    user_reading(),
)


def kept(includes: str, excludes: str = "", groups: tuple[GroupReading, ...] = GROUPS) -> set[str]:
    found = MetricFilter("includes", includes, "excludes", excludes)
    return {
        sample.name for group in groups for sample in group.samples if found.keeps(group, sample)
    }


@pytest.mark.parametrize(
    ("includes", "names"),
    [
        ("*:*:*", {"Load", "numRecordsIn", "numRecordsOut", "busyTimeMsPerSecond", "seen"}),
        ("*:numRecords*", {"numRecordsIn", "numRecordsOut"}),
        ("*:numRecordsIn,seen", {"numRecordsIn", "seen"}),
        ("taskmanager.job.task", {"numRecordsIn", "numRecordsOut", "busyTimeMsPerSecond"}),
        ("taskmanager.Status.*", {"Load"}),
        # Of a key/value group the key belongs to the scope, and its value does not.
        ("*.operator.shop.tenant", {"seen"}),
        ("*:*:counter", {"numRecordsIn", "numRecordsOut", "seen"}),
        ("*:*:gauge,meter", {"Load", "busyTimeMsPerSecond"}),
        ("*:seen; taskmanager.Status.JVM.CPU:Load", {"seen", "Load"}),
    ],
)
def test_a_metric_is_kept_that_some_rule_includes(includes: str, names: set[str]) -> None:
    assert kept(includes) == names


def test_what_is_excluded_is_not_kept_although_it_is_included() -> None:
    assert kept("*:numRecords*", "*:numRecordsOut") == {"numRecordsIn"}


def test_points_in_a_rule_stand_for_points() -> None:
    assert kept("taskmanagerxjob.task") == set()


@pytest.mark.parametrize("rule", ["*:*:counters", "*:*:", "a:b:c:d"])
def test_a_rule_that_cannot_be_is_refused_with_its_setting(rule: str) -> None:
    with pytest.raises(ConfigurationError, match="option 'includes' has the value"):
        MetricFilter("includes", rule, "excludes")
    with pytest.raises(ConfigurationError, match="option 'excludes' has the value"):
        MetricFilter("includes", "*", "excludes", rule)
