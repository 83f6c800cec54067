"""Setup: the reporters that settings name, found by entry point."""

from collections.abc import Mapping

import pytest

from headrace.core.clock import ManualClock
from headrace.core.config import Settings, check_settings
from headrace.core.errors import ConfigurationError
from headrace.graph.pipeline_options import FREE_PREFIXES
from headrace.metrics.reporters import reporter_setup
from headrace.metrics.reporters.registry import MetricRegistry
from headrace.metrics.reporters.reporter import MetricReporter
from headrace.metrics.reporters.reporter_setup import create_metric_registry
from tests.unit.metrics.reporters.reports import NotingReporter


def registry(settings: Mapping[str, str]) -> MetricRegistry:
    return create_metric_registry(Settings(settings), ManualClock(), "tm-1")


def named(name: str, **values: str) -> dict[str, str]:
    return {
        f"metrics.reporter.{name}.{key.replace('__', '.')}": value for key, value in values.items()
    }


def test_without_settings_nobody_reports() -> None:
    assert not registry({}).is_read


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("prometheus", {}),
        ("prometheuspushgateway", {"hostUrl": "http://127.0.0.1:1"}),
        ("otel", {}),
        ("log", {}),
        ("jsonlines", {"directory": "metrics"}),
        ("org.apache.flink.metrics.prometheus.PrometheusReporterFactory", {}),
        (
            "org.apache.flink.metrics.prometheus.PrometheusPushGatewayReporterFactory",
            {"hostUrl": "http://127.0.0.1:1"},
        ),
        ("org.apache.flink.metrics.otel.OpenTelemetryMetricReporterFactory", {}),
        ("org.apache.flink.metrics.slf4j.Slf4jReporterFactory", {}),
    ],
)
def test_each_kind_is_found_by_its_name_or_flinks_class(kind: str, values: dict[str, str]) -> None:
    assert registry(named("mine", factory__class=kind, **values)).is_read


def test_a_kind_is_named_by_its_own_name_too() -> None:
    assert registry({"metrics.reporters": "log"}).is_read


def test_only_those_that_are_listed_are_started() -> None:
    settings = {
        **named("a", factory__class="log", interval="5 s"),
        **named("b", factory__class="log", interval="1 s"),
    }
    assert registry(settings).interval_ms == 1_000
    assert registry({**settings, "metrics.reporters": "a"}).interval_ms == 5_000
    assert registry({**settings, "metrics.reporters": "a; b"}).interval_ms == 1_000


def test_the_interval_is_ten_seconds() -> None:
    assert registry({"metrics.reporters": "log"}).interval_ms == 10_000


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (named("mine", factory__class="nothing"), "there is no such reporter; the reporters are "),
        (
            named("log", colour="red"),
            "the reporter has no such option; its options are factory.class",
        ),
        (named("log", interval="soon"), r"option 'metrics\.reporter\.log\.interval'"),
        (named("log", interval="1 ms"), "it must be at least 100 ms"),
        (named("log", filter__includes="a:b:c:d"), "a rule must have the form scope:name"),
        (
            named("log", filter__excludes="a:b:c:d"),
            r"option 'metrics\.reporter\.log\.filter\.excludes'",
        ),
        (named("log", scope__variables__additional="x"), "write name:value"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_at_the_start(
    settings: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigurationError, match=text):
        registry(settings)


def test_a_missing_package_is_named_with_the_extra_that_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(group: str, name: str) -> type[MetricReporter]:
        raise ModuleNotFoundError("No module named 'prometheus_client'", name="prometheus_client")

    monkeypatch.setattr(reporter_setup, "load_entry_point", load)
    with pytest.raises(ConfigurationError) as caught:
        registry({"metrics.reporters": "prometheus"})
    assert "prometheus_client is not installed: pip install 'headrace[metrics]'" in str(
        caught.value
    )


def test_a_reporter_is_made_with_its_settings_and_the_name_of_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[MetricReporter] = []

    class Made(NotingReporter):
        def __init__(self, config: reporter_setup.ReporterConfig) -> None:
            MetricReporter.__init__(self, config)
            made.append(self)

    monkeypatch.setattr(reporter_setup, "load_entry_point", lambda group, name: Made)
    registry({"metrics.scope.delimiter": "/", **named("mine", interval="2 s")})
    (reporter,) = made
    assert reporter.config.process_name == "tm-1" and reporter.config.delimiter == "/"
    registry({**named("mine", scope__delimiter="_")})
    assert made[-1].config.delimiter == "_"


def test_the_command_line_leaves_settings_of_reporters_to_their_own_checks() -> None:
    check_settings({"metrics.reporter.mine.port": "9249"}, FREE_PREFIXES)
    with pytest.raises(ConfigurationError):
        check_settings({"metrics.reporterz": "mine"}, FREE_PREFIXES)
