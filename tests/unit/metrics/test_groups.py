"""MetricGroup: scopes, names, snapshots."""

import pytest

from headrace.core.clock import ManualClock
from headrace.metrics import MetricGroup
from headrace.metrics.names import METRIC_NAMES, NUM_RECORDS_IN


def test_the_same_name_gives_the_same_group_and_metric() -> None:
    group = MetricGroup(ManualClock())
    group.add_group("a").counter("c").inc()
    group.add_group("a").counter("c").inc()
    assert group.snapshot() == {"a.c": 2}


def test_a_name_stands_for_one_kind_of_metric() -> None:
    group = MetricGroup(ManualClock(), ("job", "task"))
    group.counter("x")
    with pytest.raises(ValueError, match=r"metric 'job.task.x' is a counter already"):
        group.meter("x")
    with pytest.raises(ValueError, match="counter already"):
        group.gauge("x", lambda: 1)


def test_runtime_metrics_are_made_from_their_rows() -> None:
    group = MetricGroup(ManualClock())
    group.counter(NUM_RECORDS_IN).inc(3)
    assert group.snapshot() == {"numRecordsIn": 3}


def test_a_key_and_value_make_two_names_and_a_variable() -> None:
    group = MetricGroup(ManualClock()).add_group("tenant", "acme")
    assert group.scope == ("tenant", "acme")
    assert group.variables == {"<tenant>": "acme"}


def test_operator_names_are_cleaned_in_snapshots_only() -> None:
    group = MetricGroup(ManualClock())
    group.add_group("Sink: Print to Std. Out").counter("numRecordsIn")
    assert group.snapshot() == {"Sink__Print_to_Std__Out.numRecordsIn": 0}
    assert group.add_group("Sink: Print to Std. Out").scope == ("Sink: Print to Std. Out",)


def test_all_instruments_appear_under_their_names() -> None:
    clock = ManualClock()
    group = MetricGroup(clock)
    group.gauge("g", lambda: 1)
    group.gauge("g", lambda: 2)
    group.meter("m").mark_event(4)
    group.distribution("d").update(3)
    clock.advance_ms(2_000)
    values = group.snapshot()
    assert (values["g"], values["m"], values["d_sum"]) == (2, 2.0, 3)


def test_no_two_rows_of_the_table_share_a_name() -> None:
    names = [row.name for row in METRIC_NAMES]
    assert len(set(names)) == len(names)
    assert all(row.meaning.endswith(".") for row in METRIC_NAMES)
