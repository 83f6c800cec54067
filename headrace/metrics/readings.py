"""Readings: the values of groups of metrics at one moment, as the registry reads them and reporters get them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
