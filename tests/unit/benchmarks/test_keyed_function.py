"""The comparison of keyed functions takes no figure of a run that lost or doubled records."""

from pathlib import Path

import pytest

from benchmarks.keyed_function import CheckpointWatch, check_counts, summary


@pytest.mark.parametrize("output", ["(0,5)\n(1,5)\n{}\n", "1> (0,5)\n2> (1,5)\n", "(0, 5)\n(1, 5)"])
def test_counts_that_add_up_are_taken(output: str) -> None:
    assert check_counts(output, record_count=10, key_count=2) is None


@pytest.mark.parametrize("output", ["", "(0,5)\n", "(0,5)\n(1,4)\n", "(0,5)\n(1,5)\n(2,5)\n"])
def test_records_that_are_missing_or_too_many_are_no_result(output: str) -> None:
    with pytest.raises(ValueError, match="instead of 2 with 10"):
        check_counts(output, record_count=10, key_count=2)


def test_checkpoints_count_once_they_have_metadata_also_those_that_are_gone(tmp_path: Path) -> None:
    watch = CheckpointWatch(tmp_path)
    for number in (1, 2):
        (tmp_path / "job" / f"chk-{number}").mkdir(parents=True)
    metadata = tmp_path / "job" / "chk-1" / "_metadata"
    metadata.touch()
    watch.look()
    metadata.unlink()
    watch.look()
    assert [place.name for place in watch.seen] == ["chk-1"]


def test_the_median_of_turns_counts_and_the_least_number_of_checkpoints() -> None:
    turns = [{"rate": rate, "checkpoints": rate // 10} for rate in (100, 300, 200)]
    assert summary("pyflink", turns, 1000) == {
        "pyflink_records_per_second": 200,
        "pyflink_records": 1000,
        "pyflink_turns": 3,
        "pyflink_checkpoints": 10,
    }
