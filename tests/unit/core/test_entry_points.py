"""Names and objects of entry points, from those that this package declares itself."""

import pytest

from headrace.core.entry_points import entry_point_names, load_entry_point


def test_names_of_a_group_are_sorted_and_a_group_may_be_empty() -> None:
    assert "spark" in entry_point_names("headrace.executors")
    assert entry_point_names("headrace.no_such_group") == ()


def test_a_name_gives_what_it_stands_for() -> None:
    executor_class = load_entry_point("headrace.executors", "spark")
    assert executor_class.__name__ == "SparkExecutor"


def test_a_name_that_nobody_offers_is_a_lookup_error() -> None:
    with pytest.raises(LookupError, match=r"'flink' .* 'headrace\.executors'"):
        load_entry_point("headrace.executors", "flink")
