"""What Spark's page costs at the start is told from pairs of runs that followed each other."""

from benchmarks.spark_page import summary


def test_the_cost_of_the_page_is_the_median_difference_of_pairs() -> None:
    pairs = [
        {"none": (5.0, 0.0), "page": (5.4, 1.0)},
        {"none": (9.0, 0.0), "page": (9.2, 3.0)},
        {"none": (5.0, 0.0), "page": (9.0, 1.5)},
    ]
    # Not the difference of medians, which the machine's moods change.
    assert summary(pairs) == {
        "without_s": 5.0,
        "with_s": 9.0,
        "cost_s": 0.4,
        "cost_low_s": 0.3,
        "cost_high_s": 2.2,
        "page_s": 1.5,
    }
