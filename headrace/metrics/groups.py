"""MetricGroup: the tree of metrics, with one group per job, task, operator and user-made sub-group."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from headrace.core.clock import Clock, SystemClock
from headrace.metrics.instruments import (
    Counter,
    Distribution,
    Gauge,
    Histogram,
    Meter,
    Metric,
    Number,
    RateOf,
)
from headrace.metrics.metric_name import MetricKind, MetricName

M = TypeVar("M", bound=Metric)

_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One value of a reading. `path`: the sub-groups between the group that was read and the metric.

    `keys`: `path` without the values of key/value groups, which are in `variables` by their keys. `kind` is that of the
    instrument; an instrument with several values has a sample for each.
    """

    name: str
    value: Number
    kind: MetricKind
    path: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


def samples_of(values: Mapping[str, Number]) -> list[MetricSample]:
    """Return samples of metrics of the runtime: all parts of a dotted name except the last are groups."""
    found: list[MetricSample] = []
    for name, value in values.items():
        *path, last = name.split(".")
        found.append(MetricSample(last, value, MetricKind.GAUGE, tuple(path), tuple(path)))
    return found


class MetricGroup:
    """A named node with metrics and sub-groups.

    The same name always gives the same group or metric; ValueError if the name is used for another kind of metric.
    `scope`: the names from the root to this group; `variables`: those that key/value groups set.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        scope: tuple[str, ...] = (),
        variables: Mapping[str, str] | None = None,
        *,
        is_value: bool = False,
    ) -> None:
        self._clock: Clock = clock or SystemClock()
        self._is_value: Final = is_value
        self.scope: Final = scope
        self.variables: Final = dict(variables or {})
        self._groups: dict[str, MetricGroup] = {}
        self._metrics: dict[str, Metric] = {}

    def add_group(self, name: str, extra: str | None = None) -> "MetricGroup":
        """Return the sub-group `name`, or, with `extra`, the group of key `name` and value `extra`."""
        if extra is not None:
            return self._group(name, {})._group(extra, {f"<{name}>": extra}, is_value=True)
        return self._group(name, {})

    def remove_group(self, name: str) -> None:
        """Remove a sub-group and everything below it; no effect if there is none."""
        self._groups.pop(name, None)

    def counter(self, name: str | MetricName) -> Counter:
        """Return the counter of that name."""
        return self._metric(name, Counter, Counter)

    def gauge(self, name: str | MetricName, obj: Callable[[], Number]) -> None:
        """Register `obj` as the source of the value; a later callable replaces an earlier one."""
        key = _key(name)
        gauge = Gauge(obj)
        self._metric(key, Gauge, lambda: gauge)
        self._metrics[key] = gauge

    def meter(self, name: str | MetricName, time_span_in_seconds: int = 60) -> Meter:
        """Return the meter of that name: events per second over a span."""
        return self._metric(name, Meter, lambda: Meter(self._clock, time_span_in_seconds))

    def rate(self, name: str | MetricName, read: Callable[[], int]) -> None:
        """Register the rate of the count that `read` returns, per second over the last minute."""
        key = _key(name)
        rate = RateOf(self._clock, read)
        self._metric(key, Meter, lambda: rate)
        self._metrics[key] = rate

    def distribution(self, name: str | MetricName) -> Distribution:
        """Return the distribution of that name: sum, count, min, max of integers."""
        return self._metric(name, Distribution, Distribution)

    def histogram(self, name: str | MetricName, size: int) -> Histogram:
        """Return the histogram of that name, over the last `size` values."""
        return self._metric(name, Histogram, lambda: Histogram(size))

    def snapshot(self) -> dict[str, Number]:
        """Return all values below this group by dotted name, relative to it; callable from any thread.

        In names of groups all characters except letters, digits and underscores are replaced by underscores. Metrics
        without a value are left out.
        """
        values = self.own_snapshot()
        # Copies, here and below: the task may add metrics while another thread reads.
        for name, group in list(self._groups.items()):
            prefix = _NOT_IN_A_NAME.sub("_", name)
            for key, value in group.snapshot().items():
                values[f"{prefix}.{key}"] = value
        return values

    def counters(self) -> Iterator[str]:
        """Yield the names of all counters below this group, as in `snapshot`; callable from any thread."""
        for name, metric in list(self._metrics.items()):
            if metric.kind is MetricKind.COUNTER:
                yield name
        for name, group in list(self._groups.items()):
            prefix = _NOT_IN_A_NAME.sub("_", name)
            yield from (f"{prefix}.{counter}" for counter in group.counters())

    def samples(self) -> Iterator[MetricSample]:
        """Yield all values below this group, with their sub-groups; callable from any thread."""
        yield from self._samples((), (), {})

    def own_samples(self) -> Iterator[MetricSample]:
        """Yield the values of this group's own metrics, without those of sub-groups; callable from any thread."""
        for name, metric in list(self._metrics.items()):
            for full_name, value in metric.snapshot(name).items():
                yield MetricSample(full_name, value, metric.kind)

    def _samples(
        self, path: tuple[str, ...], keys: tuple[str, ...], variables: Mapping[str, str]
    ) -> Iterator[MetricSample]:
        for name, metric in list(self._metrics.items()):
            for full_name, value in metric.snapshot(name).items():
                yield MetricSample(full_name, value, metric.kind, path, keys, variables)
        for name, group in list(self._groups.items()):
            if group._is_value:
                own = {**variables, path[-1]: name}
                yield from group._samples((*path, name), keys, own)
            else:
                yield from group._samples((*path, name), (*keys, name), variables)

    def own_snapshot(self) -> dict[str, Number]:
        """Return the values of this group's own metrics, without those of sub-groups; callable from any thread."""
        values: dict[str, Number] = {}
        for name, metric in list(self._metrics.items()):
            values.update(metric.snapshot(name))
        return values

    def _group(
        self, name: str, variables: Mapping[str, str], *, is_value: bool = False
    ) -> "MetricGroup":
        if name not in self._groups:
            self._groups[name] = MetricGroup(
                self._clock,
                (*self.scope, name),
                {**self.variables, **variables},
                is_value=is_value,
            )
        return self._groups[name]

    def _metric(self, name: str | MetricName, kind: type[M], create: Callable[[], M]) -> M:
        key = _key(name)
        metric = self._metrics.get(key)
        if metric is None:
            metric = self._metrics[key] = create()
        if not isinstance(metric, kind):
            raise ValueError(
                f"metric '{'.'.join((*self.scope, key))}' is a {type(metric).__name__.lower()} already"
            )
        return metric


def _key(name: str | MetricName) -> str:
    return name if isinstance(name, str) else name.name
