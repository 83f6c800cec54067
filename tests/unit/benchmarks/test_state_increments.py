"""The benchmark of checkpoints: an increment holds what was changed, not what the benchmark kept writing."""

import pytest

from benchmarks.state.checkpoint import changed_count, measure


def test_so_many_keys_change_as_was_asked_for_but_a_burst_at_least() -> None:
    assert changed_count(1_000_000, 0.01) == 10_000
    assert changed_count(10_000, 0.01) == 1_000
    assert changed_count(10_000, 1.0) == 10_000


@pytest.mark.slow
def test_an_increment_is_as_large_as_the_share_of_keys_that_changed() -> None:
    figures = measure("rocksdb", 1, 0.1)
    assert figures["second_written_mb"] < 0.2 * figures["first_written_mb"]
    assert figures["second_size_mb"] > figures["first_written_mb"]
