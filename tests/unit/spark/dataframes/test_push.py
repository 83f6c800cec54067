"""Columns of a DataFrame that Spark finds by their names."""

import pytest

from headrace.spark.dataframes.push import has_plain_names


@pytest.mark.parametrize("names", [["a", "b"], ["dep delay", "größe", "dep-delay"], []])
def test_names_that_mean_one_column_each_are_kept(names: list[str]) -> None:
    assert has_plain_names(names)


@pytest.mark.parametrize("names", [["a.b"], ["a", "A"], ["`a`"], ["*"], ["straße", "STRASSE"]])
def test_names_that_spark_reads_otherwise_are_replaced(names: list[str]) -> None:
    assert not has_plain_names(names)
