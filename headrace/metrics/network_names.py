"""Flink's names of a task's network metrics, below `Shuffle.Netty`: other names of metrics that `names` declares.

They are added when metrics are read, not when they are measured: a snapshot of a task holds each value once.
Source: Flink NettyShuffleMetricFactory.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from headrace.metrics import names
from headrace.metrics.groups import MetricSample

V = TypeVar("V")

SHUFFLE: Final = "Shuffle.Netty"
_INPUT: Final = (
    names.NUM_BYTES_IN_LOCAL,
    names.NUM_BYTES_IN_LOCAL_PER_SECOND,
    names.NUM_BYTES_IN_REMOTE,
    names.NUM_BYTES_IN_REMOTE_PER_SECOND,
    names.NUM_BUFFERS_IN_LOCAL,
    names.NUM_BUFFERS_IN_LOCAL_PER_SECOND,
    names.NUM_BUFFERS_IN_REMOTE,
    names.NUM_BUFFERS_IN_REMOTE_PER_SECOND,
)
_INPUT_BUFFERS: Final = (
    names.INPUT_QUEUE_LENGTH,
    names.INPUT_QUEUE_SIZE,
    names.IN_POOL_USAGE,
    names.INPUT_FLOATING_USAGE,
    names.INPUT_EXCLUSIVE_USAGE,
)
_OUTPUT_BUFFERS: Final = (
    names.OUTPUT_QUEUE_LENGTH,
    names.OUTPUT_QUEUE_SIZE,
    names.OUT_POOL_USAGE,
)
NETWORK_NAMES: Final[Mapping[str, str]] = {
    row.name: f"{SHUFFLE}.{place}.{row.name}"
    for place, rows in (
        ("Input", _INPUT),
        ("Input.Buffers", _INPUT_BUFFERS),
        ("Output.Buffers", _OUTPUT_BUFFERS),
    )
    for row in rows
}
"""Flink's name for each plain name."""
_QUEUES: Final = re.compile(r"(input|output)\.(\d+)\.((?:total|min|max|avg)QueueLen)")


def with_network_names(
    metrics: Mapping[str, V], wanted: Sequence[str] | None = None
) -> Mapping[str, V]:
    """Return a task's metrics including Flink's names, unless `wanted` is given without any of these."""
    if wanted is not None and not any(SHUFFLE in name for name in wanted):
        return metrics
    found = ((_network_name(name), value) for name, value in metrics.items())
    return {**metrics, **{name: value for name, value in found if name is not None}}


def network_samples(samples: Iterable[MetricSample]) -> Iterator[MetricSample]:
    """Yield the samples that Flink has below `Shuffle.Netty` once more under those names."""
    for sample in samples:
        name = _network_name(".".join((*sample.path, sample.name)))
        if name is not None:
            *path, last = name.split(".")
            yield replace(sample, name=last, path=tuple(path), keys=tuple(path))


def _network_name(name: str) -> str | None:
    known = NETWORK_NAMES.get(name)
    if known is not None or not name.endswith("QueueLen"):
        return known
    match = _QUEUES.fullmatch(name)
    return match and f"{SHUFFLE}.{match[1].title()}.{match[2]}.{match[3]}"
