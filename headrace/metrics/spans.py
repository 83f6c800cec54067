"""Span: one piece of work of the control plane with its begin and end, for traces. Source: Flink Span."""

from collections.abc import Mapping
from dataclasses import dataclass, field

SpanValue = str | int | float | bool


@dataclass(frozen=True)
class Span:
    """A checkpoint, or a recovery. Times are epoch ms. `error`: why it came to nothing; empty where it did not."""

    name: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, SpanValue] = field(default_factory=dict[str, SpanValue])
    error: str = ""
