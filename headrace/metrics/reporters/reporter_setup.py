"""Setup of reporters: makes the registry of a process, with the reporters that its settings name."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.core.clock import Clock, SystemClock
from headrace.core.config import Settings
from headrace.core.entry_points import entry_point_names, load_entry_point
from headrace.core.errors import ConfigurationError
from headrace.metrics.reporters.options import (
    COMMON,
    DELIMITER,
    EXCLUDES,
    FACTORY,
    INCLUDES,
    REPORTER_INTERVAL,
    REPORTER_PREFIX,
    REPORTERS,
    VARIABLE_ADDITIONAL,
    VARIABLE_EXCLUDES,
)
from headrace.metrics.reporters.registry import MetricRegistry
from headrace.metrics.reporters.reporter import (
    MetricFilter,
    MetricReporter,
    ReporterConfig,
    suffix_of,
)
from headrace.metrics.reporters.reporter_thread import ReporterThread, ReportView
from headrace.metrics.scopes import SCOPE_DELIMITER

METRIC_REPORTERS: Final = "headrace.metric_reporters"
"""Group of the entry points of reporters."""
_OF_FLINK: Final = {
    "org.apache.flink.metrics.prometheus.PrometheusReporterFactory": "prometheus",
    "org.apache.flink.metrics.prometheus.PrometheusPushGatewayReporterFactory": "prometheuspushgateway",
    "org.apache.flink.metrics.otel.OpenTelemetryMetricReporterFactory": "otel",
    "org.apache.flink.metrics.slf4j.Slf4jReporterFactory": "log",
}
_ARE_EXTRA: Final = ("prometheus", "prometheuspushgateway", "otel")


def create_metric_registry(settings: Settings, clock: Clock, process_name: str) -> MetricRegistry:
    """Return the registry of a process with its reporters, which are not started yet.

    ConfigurationError if a setting of theirs is invalid, or if one needs a package that is not installed.
    """
    found = _of_each(settings)
    return MetricRegistry(
        settings,
        clock,
        [_create(name, found[name], settings, clock, process_name) for name in _names(settings)],
    )


def refuse_unusable_reporters(settings: Settings) -> None:
    """Raise ConfigurationError for the first reporter that cannot be made with its settings."""
    create_metric_registry(settings, SystemClock(), "").close()


def _of_each(settings: Settings) -> Mapping[str, dict[str, str]]:
    """Return the settings of each reporter, by its name."""
    found: dict[str, dict[str, str]] = {name: {} for name in _listed(settings)}
    for key, value in settings.items():
        name, dot, rest = key.removeprefix(REPORTER_PREFIX).partition(".")
        if key.startswith(REPORTER_PREFIX) and dot:
            found.setdefault(name, {})[rest] = value
    return found


def _listed(settings: Settings) -> list[str]:
    text = settings.get_option(REPORTERS)
    return [name.strip() for name in text.replace(";", ",").split(",") if name.strip()]


def _names(settings: Settings) -> Sequence[str]:
    return list(dict.fromkeys(_listed(settings))) or sorted(_of_each(settings))


def _create(
    name: str, values: Mapping[str, str], settings: Settings, clock: Clock, process_name: str
) -> ReporterThread:
    delimiter = values.get(suffix_of(DELIMITER), settings.get_option(SCOPE_DELIMITER))
    config = ReporterConfig(name, values, process_name, delimiter)
    factory = _load(config)
    _refuse_unknown(config, factory)
    view = ReportView(
        MetricFilter(
            config.key_of(INCLUDES),
            config.get_option(INCLUDES),
            config.key_of(EXCLUDES),
            config.get_option(EXCLUDES),
        ),
        frozenset(_variable(part) for part in config.get_option(VARIABLE_EXCLUDES).split(";")),
        config.pairs_of(VARIABLE_ADDITIONAL, ",", ":", _variable),
    )
    interval_ms = config.get_option(REPORTER_INTERVAL).total_seconds() * 1000
    return ReporterThread(factory(config), view, interval_ms, clock)


def _load(config: ReporterConfig) -> type[MetricReporter]:
    named = config.get_option(FACTORY) or config.name
    kind = _OF_FLINK.get(named, named)
    try:
        return load_entry_point(METRIC_REPORTERS, kind)
    except LookupError:
        known = ", ".join(entry_point_names(METRIC_REPORTERS))
        raise ConfigurationError(
            config.key_of(FACTORY), named, f"there is no such reporter; the reporters are {known}"
        ) from None
    except ImportError as error:
        hint = ": pip install 'headrace[metrics]'" if kind in _ARE_EXTRA else ""
        raise ConfigurationError(
            config.key_of(FACTORY), named, f"{error.name} is not installed{hint}"
        ) from error


def _refuse_unknown(config: ReporterConfig, factory: type[MetricReporter]) -> None:
    known: list[Any] = [*COMMON, *factory.OPTIONS]
    suffixes = sorted(suffix_of(option) for option in known)
    for key, value in config.values.items():
        if key not in suffixes:
            raise ConfigurationError(
                f"{REPORTER_PREFIX}{config.name}.{key}",
                value,
                f"the reporter has no such option; its options are {', '.join(suffixes)}",
            )


def _variable(text: str) -> str:
    """Return the name of a variable, which may be written with brackets."""
    return text.strip().strip("<>")
