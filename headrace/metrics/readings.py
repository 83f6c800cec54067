"""Readings and spans: the data that the registry of a process passes to its reporters.

A reading has the values of a group of metrics at one moment, a span one piece of work of the control plane with its
begin and end, for traces. Source: Flink Span.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.metrics.groups import MetricSample
from headrace.metrics.scopes import GroupKind

ENDED_GROUPS_MAX: Final = 10_000
"""Maximum number of groups that end between two reports; above it the oldest are dropped."""


@dataclass(frozen=True)
class GroupReading:
    """The values of one group at one moment.

    `variables`: values by name, without brackets. `scope`: the names before its metrics, set by the registry.
    """

    kind: GroupKind
    variables: Mapping[str, str]
    samples: Sequence[MetricSample]
    scope: tuple[str, ...] = ()


@dataclass(frozen=True)
class MetricReport:
    """The values of one process. `ended`: last values of ended groups."""

    timestamp_ms: int
    groups: Sequence[GroupReading]
    ended: Sequence[GroupReading] = ()


MetricSource = Callable[[], Iterable[GroupReading]]
"""Function that reads the groups of one owner; callable from any thread."""


SpanValue = str | int | float | bool


@dataclass(frozen=True)
class Span:
    """A checkpoint, or a recovery. Times are epoch ms. `error`: the reason of a failure, else empty."""

    name: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, SpanValue] = field(default_factory=dict[str, SpanValue])
    error: str = ""
