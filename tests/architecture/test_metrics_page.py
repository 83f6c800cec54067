"""The page of metrics: what it says of those that only a running job has."""

from headrace.metrics.names import METRIC_NAMES, without_rates
from tools.pages.metrics import metrics_page


def test_metrics_that_end_with_their_task_are_said_to_be_measured() -> None:
    names = {metric.name for metric in METRIC_NAMES}
    momentary = names - without_rates(dict.fromkeys(names, 0.0)).keys()
    rows = [line for line in metrics_page().splitlines() if line.startswith("| `")]
    said = {row.split("`")[1]: row.rstrip("| ").rpartition("| ")[2] for row in rows}
    assert len(momentary) > 10
    assert {name for name in momentary if said[name] not in ("yes", "where asked for")} == set()
