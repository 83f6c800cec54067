"""MetricReporter: sends reports of one process to another system; MetricFilter selects the reported metrics.

MetricReporter is the base of all reporters, also of those in other packages.

A package offers a reporter as an entry point of `headrace.metric_reporters`: a subclass, made with a ReporterConfig.
Its methods are called on a thread of its own, and may block and raise any error.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

from headrace.core.config import ConfigOption
from headrace.core.errors import ConfigurationError, ErrorDomain, HeadraceError
from headrace.metrics.groups import MetricSample
from headrace.metrics.metric_name import MetricKind
from headrace.metrics.names import kind_of
from headrace.metrics.readings import GroupReading, MetricReport, Span
from headrace.metrics.reporters.options import REPORTER_PREFIX

T = TypeVar("T")

_PLACEHOLDER: Final = "<name>"
_PARTS_MAX: Final = 3


class ReportingError(HeadraceError):
    """Raised if the target system did not accept a report."""

    domain, recoverable = ErrorDomain.EXTERNAL, True


@dataclass(frozen=True)
class ReporterConfig:
    """Settings of the reporter `name`. `values`: its settings, by key without the prefix.

    `process_name`: a TaskManager's id, or `jobmanager`. `delimiter`: between the parts of whole names.
    """

    name: str
    values: Mapping[str, str]
    process_name: str
    delimiter: str = "."

    def get_option(self, option: ConfigOption[T]) -> T:
        """Return the option's value for this reporter, or its default; ConfigurationError names the whole key."""
        raw = self.values.get(suffix_of(option))
        if raw is None:
            return option.default
        try:
            return option.parse(raw)
        except ConfigurationError as error:
            raise ConfigurationError(self.key_of(option), raw, error.reason) from None

    def pairs_of(
        self,
        option: ConfigOption[str],
        between: str,
        sign: str,
        name_of: Callable[[str], str] = str.strip,
    ) -> dict[str, str]:
        """Return names and values of an option; `between` separates pairs, and `sign` a name from its value.

        ConfigurationError if it has another form, or a name is empty.
        """
        text = self.get_option(option)
        pairs: dict[str, str] = {}
        for part in filter(str.strip, text.split(between)):
            name, found, value = part.partition(sign)
            if not (found and name_of(name)):
                form = f"write name{sign}value{between}name{sign}value"
                raise ConfigurationError(self.key_of(option), text, form)
            pairs[name_of(name)] = value.strip()
        return pairs

    def key_of(self, option: ConfigOption[Any]) -> str:
        """Return the option's key for this reporter."""
        return option.key.replace(_PLACEHOLDER, self.name)


def suffix_of(option: ConfigOption[Any]) -> str:
    """Return a reporter option's key without the prefix and the name."""
    return option.key.removeprefix(f"{REPORTER_PREFIX}{_PLACEHOLDER}.")


class MetricReporter(ABC):
    """One reporter of one process. `OPTIONS`: its own options, in addition to the common ones."""

    OPTIONS: ClassVar[tuple[ConfigOption[Any], ...]] = ()
    is_pulled: ClassVar[bool] = False
    """True if it reads the groups itself on request: it then receives reports only when groups end, with only those."""

    def __init__(self, config: ReporterConfig) -> None:
        """Make the reporter. ConfigurationError for an invalid setting."""
        self.config: Final = config

    def open(self, read: Callable[[], MetricReport]) -> None:  # noqa: B027
        """Start; called again before the next report if it fails. `read` reads all groups, from any thread."""

    @abstractmethod
    def report(self, report: MetricReport) -> None:
        """Send a report."""

    def report_spans(self, spans: Sequence[Span]) -> None:  # noqa: B027
        """Send spans of traces, in the order in which they ended."""

    def close(self) -> None:  # noqa: B027
        """Stop; called once, if `open` succeeded."""

    def whole_name(self, reading: GroupReading, sample: MetricSample) -> str:
        """Return scope, sub-groups and name as one text."""
        return self.config.delimiter.join((*reading.scope, *sample.path, sample.name))


@dataclass(frozen=True)
class _Rule:
    """One rule `scope:names:types`."""

    scope: re.Pattern[str]
    names: tuple[re.Pattern[str], ...]
    kinds: frozenset[MetricKind]

    def matches(self, scope: str, name: str, kind: MetricKind) -> bool:
        """Return whether the rule matches a metric."""
        return (
            kind in self.kinds
            and self.scope.fullmatch(scope) is not None
            and any(pattern.fullmatch(name) for pattern in self.names)
        )


class MetricFilter:
    """Keeps metrics that match a rule of `includes` and none of `excludes`. Rules are texts as in the settings.

    Rules match scope, name and type. Source: Flink DefaultMetricFilter.
    """

    def __init__(
        self, includes_key: str, includes: str, excludes_key: str, excludes: str = ""
    ) -> None:
        """`includes_key`, `excludes_key`: the settings that errors name."""
        self._includes: Final = _parse(includes_key, includes)
        self._excludes: Final = _parse(excludes_key, excludes)
        self._keeps_all: Final = includes.strip() in ("*", "*:*", "*:*:*") and not self._excludes

    def keeps(self, reading: GroupReading, sample: MetricSample) -> bool:
        """Return whether a metric is reported."""
        if self._keeps_all:
            return True
        scope = ".".join((reading.kind.value, *sample.keys))
        kind = kind_of(sample)
        return any(rule.matches(scope, sample.name, kind) for rule in self._includes) and not any(
            rule.matches(scope, sample.name, kind) for rule in self._excludes
        )


def _parse(key: str, text: str) -> Sequence[_Rule]:
    return [_rule(key, part.strip()) for part in text.split(";") if part.strip()]


def _rule(key: str, text: str) -> _Rule:
    parts = text.split(":")
    if len(parts) > _PARTS_MAX:
        raise ConfigurationError(key, text, "a rule must have the form scope:name,name:type,type")
    scope, names, kinds = (*parts, *["*"] * (_PARTS_MAX - len(parts)))
    return _Rule(
        _pattern(scope),
        tuple(_pattern(name.strip()) for name in names.split(",")),
        frozenset(kind for word in kinds.split(",") for kind in _kinds(key, text, word.strip())),
    )


def _kinds(key: str, text: str, word: str) -> Sequence[MetricKind]:
    if word == "*":
        return list(MetricKind)
    try:
        return [MetricKind(word)]
    except ValueError:
        known = ", ".join(kind.value for kind in MetricKind)
        raise ConfigurationError(
            key, text, f"'{word}' is not a type of metric: use {known} or *"
        ) from None


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text).replace(r"\*", ".*"))
