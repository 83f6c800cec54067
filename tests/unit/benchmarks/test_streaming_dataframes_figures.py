"""The benchmark of streaming DataFrames: what is a row's latency, and what counts."""

import pyarrow as pa

from benchmarks.streaming_dataframes import latencies, summary


def test_rows_of_the_warm_up_do_not_count_and_each_row_waits_for_its_own_commit() -> None:
    commits = [
        (pa.table({"written": [1.0, 2.0], "seen": [9.0, 2.25]}), 3.0),
        (pa.table({"written": [4.0], "seen": [4.75]}), 7.0),
    ]
    figures = latencies(commits, begin_s=2.0)
    assert figures["seen_p50_ms"] == 500.0
    assert figures["committed_p50_ms"] == 2000.0
    assert 740.0 < figures["seen_p99_ms"] <= 750.0
    assert 2900.0 < figures["committed_p99_ms"] <= 3000.0


def test_a_figure_is_the_median_of_all_turns() -> None:
    turns = [{"rows_per_s": rate} for rate in (1.0, 30.0, 2.0)]
    assert summary({"spark_200ms": turns}) == {"spark_200ms_rows_per_s": 2.0}
