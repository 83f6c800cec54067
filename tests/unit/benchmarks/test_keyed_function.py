"""The comparison of keyed functions takes no figure of a run that lost or doubled records."""

import pytest

from benchmarks.keyed_function import check_counts


@pytest.mark.parametrize("output", ["(0,5)\n(1,5)\n{}\n", "1> (0,5)\n2> (1,5)\n", "(0, 5)\n(1, 5)"])
def test_counts_that_add_up_are_taken(output: str) -> None:
    assert check_counts(output, record_count=10, key_count=2) is None


@pytest.mark.parametrize("output", ["", "(0,5)\n", "(0,5)\n(1,4)\n", "(0,5)\n(1,5)\n(2,5)\n"])
def test_records_that_are_missing_or_too_many_are_no_result(output: str) -> None:
    with pytest.raises(ValueError, match="instead of 2 with 10"):
        check_counts(output, record_count=10, key_count=2)
