"""Readings and spans: what the registry of a process hands to its reporters.

A reading has the values of a group of metrics at one moment, a span one piece of work of the control plane with its
begin and end, for traces. Source: Flink Span.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.metrics.groups import MetricSample
from headrace.metrics.scopes import GroupKind

ENDED_GROUPS_MAX: Final = 10_000
"""Groups that ended between two reports; of more the oldest are left out."""


@dataclass(frozen=True)
class GroupReading:
    """The values of one group at one moment.

    `variables`: by name, without brackets. `scope`: the names in front of its metrics, filled in by the registry.
    """

    kind: GroupKind
    variables: Mapping[str, str]
    samples: Sequence[MetricSample]
    scope: tuple[str, ...] = ()


@dataclass(frozen=True)
class MetricReport:
    """The values of one process. `ended`: last values of groups that are gone."""

    timestamp_ms: int
    groups: Sequence[GroupReading]
    ended: Sequence[GroupReading] = ()


MetricSource = Callable[[], Iterable[GroupReading]]
"""Reads one owner's groups; from any thread."""


SpanValue = str | int | float | bool


@dataclass(frozen=True)
class Span:
    """A checkpoint, or a recovery. Times are epoch ms. `error`: why it failed; empty where it did not."""

    name: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, SpanValue] = field(default_factory=dict[str, SpanValue])
    error: str = ""
