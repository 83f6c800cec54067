"""MetricFilter: decides by scope, name and type which metrics one reporter sees. Source: Flink DefaultMetricFilter."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headrace.core.errors import ConfigurationError
from headrace.metrics.groups import MetricSample
from headrace.metrics.metric_name import MetricKind
from headrace.metrics.names import kind_of
from headrace.metrics.readings import GroupReading

_PARTS_MAX: Final = 3


@dataclass(frozen=True)
class _Rule:
    """One `scope:names:types`."""

    scope: re.Pattern[str]
    names: tuple[re.Pattern[str], ...]
    kinds: frozenset[MetricKind]

    def matches(self, scope: str, name: str, kind: MetricKind) -> bool:
        """Return whether the rule speaks of a metric."""
        return (
            kind in self.kinds
            and self.scope.fullmatch(scope) is not None
            and any(pattern.fullmatch(name) for pattern in self.names)
        )


class MetricFilter:
    """Keeps what some rule of `includes` matches and none of `excludes`. Rules are texts as in the settings."""

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
        raise ConfigurationError(key, text, "a rule is scope:name,name:type,type")
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
            key, text, f"'{word}' is no type of a metric: {known} or *"
        ) from None


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text).replace(r"\*", ".*"))
